//! Policies about programs. That a file may be executed is decided where it is opened.

use crate::Program;
use abi::Result;
use caller::HasCredentials;
use policy::Kind;
use task::policing::Subject;
use task::{Current, NewCreds};

/// The error of a policy that refuses to run a program.
pub(crate) fn decide(c: &Current, p: &Program) -> Result<()> {
    c.police(Kind::ProcessExec, || {
        let mut arguments = Vec::new();
        for argument in &p.argv {
            arguments.extend_from_slice(argument);
            arguments.push(0);
        }
        Subject { arguments, ..c.policy_subject(&p.file) }
    })
}

/// The error of a policy that refuses the IDs that the set-ID bits of a program give.
pub(crate) fn decide_credentials(c: &Current, new: &NewCreds) -> Result<()> {
    let (old, new) = (c.creds(), &new.creds);
    if [old.euid, old.suid, old.fsuid] != [new.euid, new.suid, new.fsuid] {
        c.police_users(&old, new)?;
    }
    if [old.egid, old.sgid, old.fsgid] != [new.egid, new.sgid, new.fsgid] {
        c.police_groups(&old, new)?;
    }
    Ok(())
}
