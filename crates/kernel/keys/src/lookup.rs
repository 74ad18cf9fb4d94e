//! From the number in a system call to a key.

use crate::holder::Subject;
use crate::key::{Serial, need};
use crate::rings::Rings;
use crate::search::allows;
use crate::store::Store;
use abi::{Errno, Result};

const THREAD: i32 = -1;
const PROCESS: i32 = -2;
const SESSION: i32 = -3;
const USER: i32 = -4;
const USER_SESSION: i32 = -5;
const AUTHORITY: i32 = -7;
const REQUESTOR: i32 = -8;

/// What a key is looked up for.
#[derive(Clone, Copy)]
pub(crate) struct For {
    /// What it must allow; `None`: the caller looks.
    pub(crate) needed: Option<u32>,
    /// Makes the special keyring if it is not there.
    pub(crate) create: bool,
    /// A negative key will do.
    pub(crate) partial: bool,
}

impl For {
    pub(crate) const fn new(needed: u32) -> For {
        For { needed: Some(needed), create: false, partial: false }
    }
    pub(crate) const fn creating(self) -> For {
        For { create: true, ..self }
    }
    pub(crate) const fn partial(self) -> For {
        For { partial: true, ..self }
    }
    /// Reading, which possession allows as well.
    pub(crate) const READ: For = For { needed: None, create: false, partial: false };
    pub(crate) const SETATTR: For = For::new(need::SETATTR).creating().partial();
}

/// A key, and whether the caller possesses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundKey {
    pub(crate) serial: Serial,
    pub(crate) possessed: bool,
}

impl Store {
    /// A key by the number in a call, which may be one of KEY_SPEC_*.
    pub(crate) fn look_up(&mut self, subject: &Subject<'_>, id: i32, what: For) -> Result<FoundKey> {
        let found = self.find(subject, id, what.create)?;
        let key = self.key(found.serial)?;
        match what.needed {
            Some(_) if what.partial => key.validate(subject.now)?,
            Some(_) => key.usable(subject.now)?,
            // The caller asks for the state.
            None => {}
        }
        if what.needed.is_some_and(|needed| !allows(subject, key, found.possessed, needed)) {
            return Err(Errno::EACCES);
        }
        Ok(found)
    }

    /// The same without a look at the key itself (unlinking).
    pub(crate) fn find(&mut self, subject: &Subject<'_>, id: i32, create: bool) -> Result<FoundKey> {
        let rings = self.rings_of(subject.holder);
        let serial = match id {
            THREAD if create => self.install_thread(subject)?,
            THREAD => rings.thread.ok_or(Errno::ENOKEY)?,
            PROCESS if create => self.install_process(subject)?,
            PROCESS => rings.process.ok_or(Errno::ENOKEY)?,
            SESSION => self.session(subject, rings, create)?,
            USER => self.user_rings(subject)?.0,
            USER_SESSION => self.user_rings(subject)?.1,
            AUTHORITY | REQUESTOR => return Err(Errno::ENOKEY),
            ..=0 => return Err(Errno::EINVAL),
            _ => {
                self.key(id)?;
                return Ok(FoundKey { serial: id, possessed: self.possesses(subject, id) });
            }
        };
        Ok(FoundKey { serial, possessed: true })
    }

    /// The session's keyring. A thread without one uses its user's until it wants to change it.
    fn session(&mut self, subject: &Subject<'_>, rings: Rings, create: bool) -> Result<Serial> {
        let Some(session) = rings.session else {
            let (_, user) = self.user_rings(subject)?;
            return self.install_session(subject, (!create).then_some(user));
        };
        if create && self.key(session)?.of_user {
            return self.install_session(subject, None);
        }
        Ok(session)
    }
}
