//! landlock_create_ruleset(2), landlock_add_rule(2), landlock_restrict_self(2). The crate `landlock` has the rules.

use crate::arg::{Fd, Ptr};
use crate::install::install;
use abi::{Errno, PAGE_SIZE, Result};
use caller::HasCredentials;
use ipc::ruleset::RulesetFile;
use landlock::{Domain, Handled, Ruleset, VERSION, access, net};
use rights::{Cap, Credentials};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use task::{Current, SysResult};
use vfs::{FileLayer, OpenFile};
use zerocopy::FromBytes;

const CREATE_RULESET_VERSION: u32 = 1;
const CREATE_RULESET_ERRATA: u32 = 2;
/// Which of Linux's mistakes are mended: 1, what is a TCP socket; 2, signals within a process; 3, directories that were moved
/// out of their mount. None of them was made here.
const ERRATA: u64 = 0b111;
/// Flags of what is logged, which nothing is: there is no audit.
const RESTRICT_FLAGS: u32 = 7;
const RULE_PATH_BENEATH: i32 = 1;
const RULE_NET_PORT: i32 = 2;
/// Bytes of `struct landlock_ruleset_attr`, and of its first version.
const ATTR: usize = 24;
const ATTR_FIRST: u64 = 8;

pub fn landlock_create_ruleset(c: &mut Current, attr: Ptr, size: u64, flags: u32) -> SysResult {
    match flags {
        0 => {}
        CREATE_RULESET_VERSION if attr.is_null() && size == 0 => return Ok(VERSION),
        CREATE_RULESET_ERRATA if attr.is_null() && size == 0 => return Ok(ERRATA),
        _ => return Err(Errno::EINVAL.into()),
    }
    let [fs, net, scoped] = read_attr(c, attr, size)?;
    let handled = Handled { fs, net, scoped }.check()?;
    let ops = Arc::new(RulesetFile(Ruleset::new(&c.kernel().landlock, handled)?));
    let file = OpenFile::new(None, Some(c.vfs().anonymous_inode()), ops, libc::O_RDWR);
    install(c, file, true)
}

/// What of `struct landlock_ruleset_attr` the program knows: E2BIG when it knows more than there is.
fn read_attr(c: &Current, attr: Ptr, size: u64) -> Result<[u64; 3]> {
    if size < ATTR_FIRST {
        return Err(Errno::EINVAL);
    }
    if size > PAGE_SIZE {
        return Err(Errno::E2BIG);
    }
    let mut bytes = vec![0; size as usize];
    c.read_bytes(attr.0, &mut bytes)?;
    if bytes.iter().skip(ATTR).any(|b| *b != 0) {
        return Err(Errno::E2BIG);
    }
    bytes.resize(ATTR, 0);
    <[u64; 3]>::read_from_bytes(&bytes).map_err(|_| Errno::EINVAL)
}

/// The file of a ruleset; EBADF, EBADFD for another one.
fn ruleset_file(c: &Current, fd: Fd) -> Result<Arc<OpenFile>> {
    let file = c.file(fd.0)?;
    ruleset(&file)?;
    Ok(file)
}

fn ruleset(file: &OpenFile) -> Result<&Ruleset> {
    RulesetFile::of(file).ok_or(Errno::EBADFD)
}

pub fn landlock_add_rule(c: &mut Current, fd: Fd, kind: i32, attr: Ptr, flags: u32) -> SysResult {
    if flags != 0 {
        return Err(Errno::EINVAL.into());
    }
    let file = ruleset_file(c, fd)?;
    let rules = ruleset(&file)?;
    match kind {
        RULE_PATH_BENEATH => add_path(c, rules, attr)?,
        RULE_NET_PORT => {
            let [accesses, port] = c.read_value::<[u64; 2]>(attr.0)?;
            check_accesses(accesses, rules.handled.net & net::ALL)?;
            let port = u16::try_from(port).map_err(|_| Errno::EINVAL)?;
            rules.allow_port(port, accesses)?;
        }
        _ => return Err(Errno::EINVAL.into()),
    }
    Ok(0)
}

/// ENOMSG for no access at all, EINVAL for one that the ruleset does not handle.
fn check_accesses(accesses: u64, handled: u64) -> Result<()> {
    match accesses {
        0 => Err(Errno::ENOMSG),
        _ if accesses & !handled != 0 => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

fn add_path(c: &Current, rules: &Ruleset, attr: Ptr) -> Result<()> {
    // The structure is packed.
    let [low, high, parent] = c.read_value::<[u32; 3]>(attr.0)?;
    let accesses = u64::from(low) | u64::from(high) << 32;
    check_accesses(accesses, rules.handled.fs)?;
    let file = c.file(parent as i32)?;
    // A file that is nowhere cannot be a place.
    let place = file.path.as_ref().ok_or(Errno::EBADFD)?;
    if !place.is_dir() && accesses & !access::OF_FILES != 0 {
        return Err(Errno::EINVAL);
    }
    rules.allow_file(namei::rule_object(place)?, accesses)
}

pub fn landlock_restrict_self(c: &mut Current, fd: Fd, flags: u32) -> SysResult {
    const LOG_SUBDOMAINS_OFF: u32 = 4;
    let old = c.creds();
    if !c.task.no_new_privs.load(Ordering::Relaxed) && !old.own_ns_capable(Cap::SYS_ADMIN) {
        return Err(Errno::EPERM.into());
    }
    if flags & !RESTRICT_FLAGS != 0 {
        return Err(Errno::EINVAL.into());
    }
    if fd.0 == -1 && flags == LOG_SUBDOMAINS_OFF {
        return Ok(0);
    }
    let file = ruleset_file(c, fd)?;
    let domain = Domain::new(old.landlock.as_deref(), ruleset(&file)?)?;
    let mut new = Credentials::clone(&old);
    new.landlock = Some(domain);
    c.task.set_creds(new);
    Ok(0)
}
