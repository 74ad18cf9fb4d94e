//! What fsopen(2) and fspick(2) give a descriptor of: parameters that are collected for a new instance of a file system, or
//! for one that is mounted (Linux's `struct fs_context`). mount(2) goes the same way.
//!
//! Lock: a leaf, not held while an instance is made or changed. A checkpoint keeps parameters, phase and messages.

use crate::change::Change;
use crate::fs_context::PathCaller;
use crate::fs_parameters::{self, Parameter, Value};
use crate::fstypes::{FsType, FsTypes, Request};
use crate::mount_ns::MountNs;
use abi::{Errno, Result};
use caller::quota::{Account, Charge, Kind};
use lock_order::Mutex;
use rights::cred::Cap;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use user_ns::UserNamespace;
use vfs::Caller;
use vfs::file::{FileOps, OpenFile, StreamOps};
use vfs::mount::{Mount, MountFlags, Path, SbFlags, Source, SuperBlock};

/// Messages that are kept for read(2).
const MESSAGES: usize = 8;
/// Parameters of one instance.
const MAX_PARAMETERS: usize = 1024;
/// Bytes of a parameter besides its name and value.
const PARAMETER: usize = 96;

/// Names that set a flag of the instance, and those that clear one.
const SB_WORDS: &[(&str, SbFlags, bool)] = &[
    ("dirsync", SbFlags::DIRSYNC, true),
    ("lazytime", SbFlags::LAZYTIME, true),
    ("mand", SbFlags::MANDLOCK, true),
    ("ro", SbFlags::RDONLY, true),
    ("sync", SbFlags::SYNCHRONOUS, true),
    ("async", SbFlags::SYNCHRONOUS, false),
    ("nolazytime", SbFlags::LAZYTIME, false),
    ("nomand", SbFlags::MANDLOCK, false),
    ("rw", SbFlags::RDONLY, false),
];

fn account(cx: &(impl PathCaller + ?Sized)) -> Arc<Account> {
    cx.quotas().account(cx.creds().uid)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Collects parameters for a new instance.
    CreateParameters,
    /// A call makes or changes the instance.
    Busy,
    /// The instance waits for fsmount(2).
    AwaitingMount,
    /// Mounted; the next parameter is for a change.
    AwaitingReconfigure,
    /// Collects parameters for a change.
    ReconfigureParameters,
    /// A call failed: the descriptor takes no more parameters.
    Failed,
}

struct State {
    phase: Phase,
    parameters: Vec<Parameter>,
    /// What the parameters are counted as.
    charge: Option<Charge>,
    source: Option<Arc<Source>>,
    flags: SbFlags,
    /// The flags that were named.
    named: SbFlags,
    sb: Option<Arc<SuperBlock>>,
    messages: VecDeque<String>,
}

/// Parameters on their way to an instance.
pub struct FsConfig<C: ?Sized = dyn PathCaller> {
    kind: FsType<C>,
    /// Where a new instance would belong if it were made by the task that asked for the descriptor.
    owner: Option<Arc<UserNamespace>>,
    /// The mount with the instance that is to be changed.
    target: Option<Path>,
    /// The account that is charged.
    user: Arc<Account>,
    state: Mutex<State>,
}

impl<C: PathCaller + ?Sized + 'static> FsConfig<C> {
    /// For a new instance.
    pub fn new(cx: &C, kind: FsType<C>) -> FsConfig<C> {
        let owner = Some(kind.owner(cx));
        let state = Mutex::new(State::new(Phase::CreateParameters));
        FsConfig { kind, owner, target: None, user: account(cx), state }
    }

    /// For the instance that is mounted at `target`.
    pub fn reconfiguring(cx: &C, kind: FsType<C>, target: Path) -> FsConfig<C> {
        let mut state = State::new(Phase::ReconfigureParameters);
        state.sb = Some(target.mount.sb.clone());
        FsConfig { kind, owner: None, target: Some(target), user: account(cx), state: Mutex::new(state) }
    }

    /// Sets one parameter. EINVAL for one that the type does not know, EBUSY outside the phases for parameters, ENOMEM for
    /// too many.
    pub fn set(&self, name: &[u8], value: Value) -> Result<()> {
        let mut s = self.state.lock();
        s.settle();
        if !matches!(s.phase, Phase::CreateParameters | Phase::ReconfigureParameters) {
            return Err(Errno::EBUSY);
        }
        if name.is_empty() {
            return s.complain("Unnamed parameter".into());
        }
        if let Some((_, flag, on)) = SB_WORDS.iter().find(|(word, ..)| word.as_bytes() == name) {
            s.flags.set(*flag, *on);
            s.named |= *flag;
            return Ok(());
        }
        if name == b"source" {
            let Value::String(text) = value else { return s.complain("Non-string source".into()) };
            if s.source.is_some() {
                return s.complain("Multiple sources".into());
            }
            s.source = Some(Source::charged(&self.user, &text)?);
            return Ok(());
        }
        let complaint = match self.kind.known {
            Some(known) => fs_parameters::complaint(known, name, &value),
            None if matches!(value, Value::Flag | Value::String(_)) => None,
            // No open file: an instance that keeps a file of its own open would never end.
            None => Some(format!("Bad value for '{}'", String::from_utf8_lossy(name))),
        };
        if let Some(what) = complaint {
            return s.complain(format!("{}: {what}", self.kind.name));
        }
        if s.parameters.len() >= MAX_PARAMETERS {
            return Err(Errno::ENOMEM);
        }
        s.charge(&self.user, PARAMETER + name.len() + value.text_len())?;
        s.parameters.push((name.to_vec(), value));
        Ok(())
    }

    /// Sets the options of mount(2).
    pub fn set_all(&self, options: &[u8]) -> Result<()> {
        let splits = |text: &[u8]| {
            let mut escaped = false;
            let mut all = vec![Vec::new()];
            for &b in text {
                // Only overlay knows commas in values.
                if b == b',' && !(escaped && self.kind.name == "overlay") {
                    all.push(Vec::new());
                } else if let Some(last) = all.last_mut() {
                    last.push(b);
                }
                escaped = b == b'\\' && !escaped;
            }
            all
        };
        for word in splits(options).iter().filter(|w| !w.is_empty()) {
            match word.iter().position(|&b| b == b'=') {
                Some(0) => {}
                Some(at) => self.set(&word[..at], Value::String(word[at + 1..].to_vec()))?,
                None => self.set(word, Value::Flag)?,
            }
        }
        Ok(())
    }

    /// Sets flags of the instance as mount(2) gives them.
    pub fn set_flags(&self, flags: SbFlags, mask: SbFlags) {
        let mut s = self.state.lock();
        s.flags = flags & mask;
        s.named = mask;
    }

    /// Makes the instance (FSCONFIG_CMD_CREATE). EBUSY when there is one, EPERM for a caller that could not have asked
    /// for the descriptor.
    pub fn create(&self, cx: &C) -> Result<Arc<SuperBlock>> {
        let request = {
            let mut s = self.state.lock();
            s.settle();
            if s.phase != Phase::CreateParameters {
                return Err(Errno::EBUSY);
            }
            if self.owner.as_ref().is_some_and(|owner| !cx.creds().ns_capable(owner, Cap::SYS_ADMIN)) {
                return Err(Errno::EPERM);
            }
            s.phase = Phase::Busy;
            s.charge = None;
            let source = s.source.as_ref().map(|source| source.to_vec());
            Request { parameters: std::mem::take(&mut s.parameters), source, flags: s.flags }
        };
        let made = self.kind.create(cx, &request);
        let mut s = self.state.lock();
        match made {
            Ok(sb) => {
                sb.set_flags(s.flags, s.named & SbFlags::CHANGING);
                if sb.fs.is_fixed() {
                    sb.set_flags(SbFlags::RDONLY, SbFlags::RDONLY);
                }
                s.sb = Some(sb.clone());
                s.phase = Phase::AwaitingMount;
                Ok(sb)
            }
            Err(e) => {
                s.phase = Phase::Failed;
                Err(e)
            }
        }
    }

    /// Changes the instance (FSCONFIG_CMD_RECONFIGURE). EBUSY in another phase, and when it would become read-only
    /// while a file is open for writing; EPERM for a caller that may not change it.
    pub fn reconfigure(&self, cx: &C) -> Result<()> {
        let (sb, request, flags, mask) = {
            let mut s = self.state.lock();
            s.settle();
            if s.phase != Phase::ReconfigureParameters {
                return Err(Errno::EBUSY);
            }
            let Some(sb) = s.sb.clone() else { return Err(Errno::EBUSY) };
            s.phase = Phase::Busy;
            let parameters = std::mem::take(&mut s.parameters);
            s.charge = None;
            (sb, Request { parameters, source: None, flags: s.flags }, s.flags, s.named & SbFlags::CHANGING)
        };
        let change = Change::begin(&cx.vfs().mounts);
        let done = sb.may_reconfigure(&cx.creds()).and_then(|()| cx.creds().may_change_mounts());
        let done = done.and_then(|()| change.reconfigure(&sb, flags, mask, Some(&request.text())));
        drop(change);
        self.state.lock().phase = if done.is_ok() { Phase::AwaitingReconfigure } else { Phase::Failed };
        if let (Ok(()), Some(target)) = (&done, &self.target) {
            target.mount.announce();
        }
        done
    }

    /// A mount of the instance, attached nowhere, for the namespace `ns` (fsmount(2)). EINVAL without an instance, EPERM when
    /// it would show what the namespace may not see, EBUSY when it was mounted.
    pub fn mount(&self, ns: &MountNs, flags: MountFlags) -> Result<Arc<Mount>> {
        let (sb, source) = {
            let s = self.state.lock();
            let Some(sb) = s.sb.clone() else { return Err(Errno::EINVAL) };
            (sb, s.source.clone().unwrap_or_else(|| Source::new(b"none")))
        };
        let root = sb.root.clone();
        let mount = Mount::with_source(sb, root, flags, source);
        let revealing = ns.check_revealing(&mount);
        let mut s = self.state.lock();
        revealing.inspect_err(|_| s.log("VFS: Mount too revealing"))?;
        if s.phase != Phase::AwaitingMount {
            return Err(Errno::EBUSY);
        }
        s.phase = Phase::AwaitingReconfigure;
        s.source = None;
        Ok(mount)
    }
}

impl State {
    fn new(phase: Phase) -> State {
        State {
            phase,
            parameters: Vec::new(),
            charge: None,
            source: None,
            flags: SbFlags::empty(),
            named: SbFlags::empty(),
            sb: None,
            messages: VecDeque::new(),
        }
    }

    /// After a mount or a change the next request begins a change.
    fn settle(&mut self) {
        if self.phase == Phase::AwaitingReconfigure {
            self.phase = Phase::ReconfigureParameters;
            self.parameters.clear();
            self.charge = None;
            (self.flags, self.named) = (SbFlags::empty(), SbFlags::empty());
        }
    }

    /// Counts bytes of parameters. ENOMEM.
    fn charge(&mut self, user: &Arc<Account>, more: usize) -> Result<()> {
        let more = more as u64;
        let fits = match &mut self.charge {
            Some(charge) => charge.resize(charge.count() + more),
            none => {
                *none = user.charge(Kind::MountTexts, more);
                none.is_some()
            }
        };
        if fits { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// Records an error for read(2).
    fn log(&mut self, what: &str) {
        if self.messages.len() == MESSAGES {
            self.messages.pop_front();
        }
        self.messages.push_back(format!("e {what}\n"));
    }

    /// The same for a parameter; EINVAL.
    fn complain(&mut self, what: String) -> Result<()> {
        self.log(&what);
        Err(Errno::EINVAL)
    }
}

impl<C: PathCaller + ?Sized + 'static> FileOps for FsConfig<C> {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_stream(&self) -> Option<&dyn StreamOps> {
        Some(self)
    }
    /// One message. ENODATA without any; EMSGSIZE when there is not enough room.
    fn read(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], _off: u64) -> Result<usize> {
        let mut s = self.state.lock();
        let message = s.messages.front().ok_or(Errno::ENODATA)?;
        let to = buf.get_mut(..message.len()).ok_or(Errno::EMSGSIZE)?;
        to.copy_from_slice(message.as_bytes());
        let n = to.len();
        s.messages.pop_front();
        Ok(n)
    }
    fn link_name(&self) -> Option<String> {
        Some("anon_inode:[fscontext]".into())
    }
}

impl<C: PathCaller + ?Sized + 'static> StreamOps for FsConfig<C> {}

/// An instance of a type with these options; ENODEV for an unknown type.
pub fn create<C: PathCaller + ?Sized + 'static>(
    types: &FsTypes<C>,
    cx: &C,
    name: &str,
    options: &[u8],
) -> Result<Arc<SuperBlock>> {
    let config = FsConfig::new(cx, types.find(name.as_bytes())?);
    config.set_all(options)?;
    config.create(cx)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount_ns::MountNs;
    use crate::testing::TestPathCaller;
    use vfs::inode::InternalFs;
    use vfs::testing::TestCaller;

    fn caller() -> TestPathCaller {
        TestPathCaller { caller: TestCaller::root(), fs: None }
    }

    fn config(cx: &TestPathCaller) -> FsConfig {
        let types: FsTypes = FsTypes::default();
        types.register("any", true, |_, _| Ok(SuperBlock::new(Arc::new(InternalFs::Anon))));
        FsConfig::new(cx, types.find(b"any").unwrap())
    }

    #[test]
    fn what_programs_give_is_bounded() {
        let cx = caller();
        let long = || Value::String(vec![b'x'; 255]);
        let mut all = Vec::new();
        let full = loop {
            let new = config(&cx);
            let set: Result<()> = (0..MAX_PARAMETERS).try_for_each(|_| new.set(b"name", long()));
            all.push(new);
            if set.is_err() {
                break set;
            }
        };
        assert_eq!(full, Err(Errno::ENOMEM));
        assert_eq!((all.len() * MAX_PARAMETERS * (PARAMETER + 4 + 255)) >> 20, 32);
        assert_eq!(all[0].set(b"source", long()), Err(Errno::ENOMEM));
        assert_eq!(all[0].set(b"source", Value::String(b"short".to_vec())), Ok(()));
        // What has been used, or will never be, is given back.
        all[0].create(&cx).unwrap();
        assert_eq!(all[1].set(b"source", long()), Ok(()));
        drop(all);
        assert_eq!(config(&cx).set(b"name", long()), Ok(()));
    }

    #[test]
    fn copies_have_one_source() {
        let cx = caller();
        let new = config(&cx);
        new.set(b"source", Value::String(vec![b'x'; 4000])).unwrap();
        new.create(&cx).unwrap();
        let ns = MountNs::new(&cx.vfs, Mount::of(Arc::new(InternalFs::Anon), MountFlags::empty(), b"root"));
        let mount = new.mount(&ns, MountFlags::empty()).unwrap();
        let used = || cx.vfs.resources.quotas.account(0).used(Kind::MountTexts);
        assert_eq!(used(), 4000 - 64);
        let own = MountNs::new(&cx.vfs, mount.clone());
        let (copy, _) = own.copy(&cx, own.user_ns()).unwrap();
        assert!(Arc::ptr_eq(&copy.root().mount.source, &mount.source));
        drop((new, own, mount));
        assert_eq!(used(), 4000 - 64);
        drop(copy);
        assert_eq!(used(), 0);
    }
}
