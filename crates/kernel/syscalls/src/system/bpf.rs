//! bpf(2): programs that decide about devices for control groups. The crate `ebpf` verifies and runs them, the crate
//! `cgroup` attaches them.
//!
//! Programs about packets (BPF_PROG_TYPE_CGROUP_SKB) can be loaded, by which libraries find out whether there are
//! programs of groups at all, but not attached. There are no maps, no BTF, no links and no other programs. Making them
//! answers EINVAL, as a kernel without them does, and lists of them are empty. Like Linux with
//! kernel.unprivileged_bpf_disabled=2, capabilities count in the initial user namespace. To attach and detach programs
//! takes descriptors of the group and the program, and no capability.

use crate::arg::Ptr;
use crate::install::install;
use crate::processes::process::group_of;
use abi::{Errno, PAGE_SIZE, Result};
use caller::HasCredentials;
use cgroup::{Attach, BpfProgram, ProgramInfo};
use ebpf::{Instruction, Kind, MAX_INSTRUCTIONS, Program};
use rights::Cap;
use std::any::Any;
use std::sync::Arc;
use task::{Current, SysResult};
use vfs::{FileLayer, FileOps, OpenFile};
use zerocopy::IntoBytes;

/// Bytes of `union bpf_attr` that are known.
const ATTR: usize = 152;
/// Bytes of `struct bpf_prog_info`.
const INFO: usize = 232;
const CGROUP_INET_INGRESS: u32 = 0;
const CGROUP_INET_EGRESS: u32 = 1;
const CGROUP_DEVICE: u32 = 6;
const QUERY_EFFECTIVE: u32 = 1;
/// BPF_F_STRICT_ALIGNMENT and BPF_F_ANY_ALIGNMENT: loads are aligned in any case.
const ALIGNMENT: u32 = 3;
/// Longest license, its end included.
const LICENSE: usize = 128;
const GPL_COMPATIBLE: [&[u8]; 6] =
    [b"GPL", b"GPL v2", b"GPL and additional rights", b"Dual BSD/GPL", b"Dual MIT/GPL", b"Dual MPL/GPL"];

mod command {
    pub(super) const MAP_CREATE: i32 = 0;
    pub(super) const PROG_LOAD: i32 = 5;
    pub(super) const PROG_ATTACH: i32 = 8;
    pub(super) const PROG_DETACH: i32 = 9;
    pub(super) const PROG_GET_NEXT_ID: i32 = 11;
    pub(super) const MAP_GET_NEXT_ID: i32 = 12;
    pub(super) const PROG_GET_FD_BY_ID: i32 = 13;
    pub(super) const MAP_GET_FD_BY_ID: i32 = 14;
    pub(super) const OBJ_GET_INFO_BY_FD: i32 = 15;
    pub(super) const PROG_QUERY: i32 = 16;
    pub(super) const BTF_LOAD: i32 = 18;
    pub(super) const BTF_GET_FD_BY_ID: i32 = 19;
    pub(super) const BTF_GET_NEXT_ID: i32 = 23;
    pub(super) const LINK_GET_FD_BY_ID: i32 = 30;
    pub(super) const LINK_GET_NEXT_ID: i32 = 31;
}

/// The file of a program.
struct ProgramFile(Arc<BpfProgram>);

impl FileOps for ProgramFile {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn link_name(&self) -> Option<String> {
        Some("anon_inode:bpf-prog".into())
    }
    fn fdinfo(&self) -> String {
        let program = &self.0.program;
        let tag: String = program.tag().iter().map(|byte| format!("{byte:02x}")).collect();
        format!(
            "prog_type:\t{}\nprog_jited:\t0\nprog_tag:\t{tag}\nmemlock:\t{}\nprog_id:\t{}\n\
             run_time_ns:\t0\nrun_cnt:\t0\nrecursion_misses:\t0\nverified_insns:\t{}\n",
            program.kind().number(),
            program.code().as_bytes().len().next_multiple_of(PAGE_SIZE as usize),
            self.0.id(),
            program.code().len(),
        )
    }
}

/// What the caller passes: `union bpf_attr`.
struct Attr {
    at: u64,
    size: u32,
    bytes: [u8; ATTR],
}

impl Attr {
    /// E2BIG when the caller passes something that is not known.
    fn read(c: &Current, at: Ptr, size: u32) -> Result<Attr> {
        let mut bytes = [0; ATTR];
        read_known(c, at.0, size, &mut bytes)?;
        Ok(Attr { at: at.0, size, bytes })
    }

    fn word(&self, at: usize) -> u32 {
        self.bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
    }

    fn long(&self, at: usize) -> u64 {
        u64::from(self.word(at)) | u64::from(self.word(at + 4)) << 32
    }

    /// EINVAL when there is something behind the command's last field.
    fn ends(&self, at: usize) -> Result<()> {
        if self.bytes.iter().skip(at).all(|byte| *byte == 0) { Ok(()) } else { Err(Errno::EINVAL) }
    }
}

/// Copies a structure of a size that both sides know; E2BIG for one with a value in a part that only the caller knows.
fn read_known(c: &Current, at: u64, size: u32, to: &mut [u8]) -> Result<()> {
    let size = size as usize;
    if size > PAGE_SIZE as usize {
        return Err(Errno::E2BIG);
    }
    let mut bytes = vec![0; size];
    c.read_bytes(at, &mut bytes)?;
    let (known, more) = bytes.split_at(size.min(to.len()));
    if more.iter().any(|byte| *byte != 0) {
        return Err(Errno::E2BIG);
    }
    to[..known.len()].copy_from_slice(known);
    Ok(())
}

pub fn bpf(c: &mut Current, command: i32, attr: Ptr, size: u32) -> SysResult {
    let attr = Attr::read(c, attr, size)?;
    match command {
        command::PROG_LOAD => load(c, &attr),
        command::PROG_ATTACH => attach(c, &attr),
        command::PROG_DETACH => detach(c, &attr),
        command::PROG_QUERY => query(c, &attr),
        command::PROG_GET_NEXT_ID => next(c, &attr),
        command::PROG_GET_FD_BY_ID => {
            attr.ends(4)?;
            may_administer(c)?;
            let program = programs(c).find(attr.word(0))?;
            install_program(c, program)
        }
        command::OBJ_GET_INFO_BY_FD => info(c, &attr),
        command::MAP_GET_NEXT_ID
        | command::MAP_GET_FD_BY_ID
        | command::BTF_GET_NEXT_ID
        | command::BTF_GET_FD_BY_ID
        | command::LINK_GET_NEXT_ID
        | command::LINK_GET_FD_BY_ID => {
            may_administer(c)?;
            Err(Errno::ENOENT.into())
        }
        command::MAP_CREATE | command::BTF_LOAD => {
            may(c, Cap::BPF)?;
            Err(Errno::EINVAL.into())
        }
        _ => Err(Errno::EINVAL.into()),
    }
}

/// EPERM without the capability, or CAP_SYS_ADMIN in its place.
fn may(c: &Current, cap: Cap) -> Result<()> {
    let creds = c.creds();
    if creds.capable(cap) || creds.capable(Cap::SYS_ADMIN) { Ok(()) } else { Err(Errno::EPERM) }
}

fn may_administer(c: &Current) -> Result<()> {
    may(c, Cap::SYS_ADMIN)
}

/// The programs of the caller's container.
fn programs(c: &Current) -> &Arc<cgroup::Programs> {
    &c.task.group.container.programs
}

fn install_program(c: &mut Current, program: Arc<BpfProgram>) -> SysResult {
    let inode = Some(c.vfs().anonymous_inode());
    install(c, OpenFile::new(None, inode, Arc::new(ProgramFile(program)), libc::O_RDWR), true)
}

/// The program of a descriptor. EBADF, EINVAL for another file and for a program of another kind.
fn program(c: &Current, fd: u32, kind: Kind) -> Result<Arc<BpfProgram>> {
    let file = c.file(fd as i32)?;
    let program = file.ops.as_any().downcast_ref::<ProgramFile>().map(|file| file.0.clone());
    program.filter(|loaded| loaded.program.kind() == kind).ok_or(Errno::EINVAL)
}

fn load(c: &mut Current, attr: &Attr) -> SysResult {
    let (kind, count, flags) = (attr.word(0), attr.word(4) as usize, attr.word(44));
    if flags & !ALIGNMENT != 0 {
        return Err(Errno::EINVAL.into());
    }
    may(c, Cap::BPF)?;
    if count == 0 || count > MAX_INSTRUCTIONS {
        return Err(Errno::E2BIG.into());
    }
    let kind = Kind::of(kind);
    if kind == Some(Kind::CgroupDevice) {
        may(c, Cap::NET_ADMIN)?;
    }
    if kind == Some(Kind::CgroupSkb) && !matches!(attr.word(68), CGROUP_INET_INGRESS | CGROUP_INET_EGRESS) {
        return Err(Errno::EINVAL.into());
    }
    // Types of arguments (func_info, line_info, relocations), another program or type to attach to, descriptors of maps.
    if [88, 104, 108, 112, 116, 148].iter().any(|at| attr.word(*at) != 0) {
        return Err(Errno::EINVAL.into());
    }
    let license = c.read_cstr(attr.long(16), LICENSE - 1, Errno::E2BIG);
    let license = match license {
        Err(Errno::EFAULT) => return Err(Errno::EFAULT.into()),
        // Linux cuts a longer one off, too: none that is compatible is that long.
        license => license.unwrap_or_default(),
    };
    let code: Vec<Instruction> = c.read_array(attr.long(8), count, MAX_INSTRUCTIONS)?;
    // A program for a network device.
    if attr.word(64) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let kind = kind.ok_or(Errno::EINVAL)?;
    let name = name(attr)?;
    let log = Log::of(attr)?;
    let verified = Program::new(kind, code);
    let text = match &verified {
        Ok(program) => program.log(),
        Err(refused) => refused.log(),
    };
    let written = log.write(c, attr, text.as_bytes());
    written?;
    let program = verified.map_err(|refused| refused.errno)?;
    let about = ProgramInfo {
        name,
        loaded: c.kernel().boottime_of(c.kernel().clock().now()),
        uid: c.creds().uid,
        gpl: GPL_COMPATIBLE.contains(&&license[..]),
    };
    let program = programs(c).load(program, about)?;
    install_program(c, program)
}

/// The name of a program. EINVAL for one with other characters than letters, digits, `_` and `.`, or without an end.
fn name(attr: &Attr) -> Result<[u8; 16]> {
    let given: [u8; 16] = std::array::from_fn(|i| attr.bytes[48 + i]);
    let end = given.iter().position(|byte| *byte == 0).ok_or(Errno::EINVAL)?;
    let mut name = [0; 16];
    name[..end].copy_from_slice(&given[..end]);
    let good = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    if name[..end].iter().all(good) { Ok(name) } else { Err(Errno::EINVAL) }
}

/// Where the verifier's log goes.
struct Log {
    level: u32,
    to: u64,
    size: u32,
}

impl Log {
    /// BPF_LOG_FIXED: what does not fit is cut off at the end rather than at the beginning.
    const FIXED: u32 = 8;
    const LEVELS: u32 = 7 | Log::FIXED;

    fn of(attr: &Attr) -> Result<Log> {
        let log = Log { level: attr.word(24), size: attr.word(28), to: attr.long(32) };
        let both = (log.to == 0) == (log.size == 0);
        let wanted = log.to == 0 || log.level != 0;
        if both && wanted && log.level & !Log::LEVELS == 0 && log.size <= u32::MAX >> 2 {
            Ok(log)
        } else {
            Err(Errno::EINVAL)
        }
    }

    /// Writes it, and how long it is. ENOSPC when it did not fit, EFAULT.
    fn write(&self, c: &mut Current, attr: &Attr, text: &[u8]) -> Result<()> {
        const TRUE_SIZE: u64 = 140;
        if self.level == 0 {
            return Ok(());
        }
        // Older callers have no room for it.
        if u64::from(attr.size) >= TRUE_SIZE + 4 {
            c.write_value(attr.at + TRUE_SIZE, &(text.len() as u32 + 1))?;
        }
        let Some(room) = (self.size as usize).checked_sub(1) else { return Ok(()) };
        let fits = text.len().min(room);
        let part = match self.level & Log::FIXED {
            0 => text.get(text.len() - fits..),
            _ => text.get(..fits),
        };
        c.write_bytes(self.to, &[part.unwrap_or_default(), &[0]].concat())?;
        if fits == text.len() { Ok(()) } else { Err(Errno::ENOSPC) }
    }
}

fn attach(c: &mut Current, attr: &Attr) -> SysResult {
    attr.ends(32)?;
    let flags = Attach::from_bits(attr.word(12)).ok_or(Errno::EINVAL)?;
    // Neither a place among the others nor a revision can be asked for.
    if attr.word(20) != 0 || attr.long(24) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let kind = match attr.word(8) {
        CGROUP_DEVICE => Kind::CgroupDevice,
        CGROUP_INET_INGRESS | CGROUP_INET_EGRESS => Kind::CgroupSkb,
        _ => return Err(Errno::EINVAL.into()),
    };
    let new = program(c, attr.word(4), kind).map_err(|e| match kind {
        // systemd takes EBADF here for a sign that programs about packets can be attached.
        Kind::CgroupSkb => Errno::EINVAL,
        _ => e,
    })?;
    let group = group_of(c, attr.word(0) as i32)?;
    group.check_alive().map_err(|_| Errno::ENOENT)?;
    let replaced = match flags.contains(Attach::ALLOW_MULTI | Attach::REPLACE) {
        true => Some(program(c, attr.word(16), kind)?),
        false => None,
    };
    // Packets are not shown to programs of groups.
    if kind == Kind::CgroupSkb {
        return Err(Errno::EINVAL.into());
    }
    group.attach_program(&new, flags, replaced.as_ref())?;
    Ok(0)
}

fn detach(c: &mut Current, attr: &Attr) -> SysResult {
    attr.ends(32)?;
    if attr.word(8) != CGROUP_DEVICE || attr.word(12) != 0 || attr.word(20) != 0 || attr.long(24) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let group = group_of(c, attr.word(0) as i32)?;
    let which = program(c, attr.word(4), Kind::CgroupDevice).ok();
    group.detach_program(which.as_ref())?;
    Ok(0)
}

fn query(c: &mut Current, attr: &Attr) -> SysResult {
    const FLAGS: u64 = 12;
    const COUNT: u64 = 24;
    may(c, Cap::NET_ADMIN)?;
    attr.ends(64)?;
    let (kind, asked) = (attr.word(4), attr.word(8));
    if kind != CGROUP_DEVICE || asked & !QUERY_EFFECTIVE != 0 {
        return Err(Errno::EINVAL.into());
    }
    let group = group_of(c, attr.word(0) as i32)?;
    let (mut flags, mut programs) = group.programs()?;
    let (ids, room, each_flags) = (attr.long(16), attr.word(24) as usize, attr.long(32));
    let each = flags.bits();
    if asked & QUERY_EFFECTIVE != 0 {
        if each_flags != 0 {
            return Err(Errno::EINVAL.into());
        }
        (flags, programs) = (Attach::empty(), group.effective_programs());
    }
    c.write_value(attr.at + FLAGS, &flags.bits())?;
    c.write_value(attr.at + COUNT, &(programs.len() as u32))?;
    if room == 0 || ids == 0 || programs.is_empty() {
        return Ok(0);
    }
    let shown: Vec<u32> = programs.iter().take(room).map(|program| program.id()).collect();
    c.write_bytes(ids, shown.as_bytes())?;
    if each_flags != 0 {
        c.write_bytes(each_flags, vec![each; shown.len()].as_bytes())?;
    }
    if room < programs.len() { Err(Errno::ENOSPC.into()) } else { Ok(0) }
}

fn next(c: &mut Current, attr: &Attr) -> SysResult {
    const NEXT: u64 = 4;
    attr.ends(8)?;
    if attr.word(0) >= i32::MAX as u32 {
        return Err(Errno::EINVAL.into());
    }
    may_administer(c)?;
    let id = programs(c).next(attr.word(0))?;
    c.write_value(attr.at + NEXT, &id)?;
    Ok(0)
}

/// `struct bpf_prog_info`, in parts.
struct Info([u8; INFO]);

impl Info {
    const JITED_LEN: usize = 16;
    const LEN: usize = 20;
    const CODE: usize = 32;
    const TAGS: usize = 180;
    const TAG_LIST: usize = 184;

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(field) = self.0.get_mut(at..at + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    }

    fn word(&self, at: usize) -> u32 {
        self.0.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
    }

    fn long(&self, at: usize) -> u64 {
        u64::from(self.word(at)) | u64::from(self.word(at + 4)) << 32
    }
}

fn info(c: &mut Current, attr: &Attr) -> SysResult {
    const LEN: u64 = 4;
    attr.ends(16)?;
    let file = c.file(attr.word(0) as i32).map_err(|_| Errno::EBADFD)?;
    let loaded = file.ops.as_any().downcast_ref::<ProgramFile>().ok_or(Errno::EINVAL)?.0.clone();
    let (len, to) = (attr.word(4), attr.long(8));
    let mut info = Info([0; INFO]);
    read_known(c, to, len, &mut info.0)?;
    let tag = loaded.program.tag();
    let about = &loaded.about;
    let uid = c.creds().user_ns.show_user(about.uid);
    info.put(0, &loaded.program.kind().number().to_le_bytes());
    info.put(4, &loaded.id().to_le_bytes());
    info.put(8, &tag);
    info.put(40, &about.loaded.to_le_bytes());
    info.put(48, &uid.to_le_bytes());
    info.put(64, &about.name);
    info.put(84, &u32::from(about.gpl).to_le_bytes());
    info.put(216, &(loaded.program.code().len() as u32).to_le_bytes());
    // Nothing is compiled, and there are no maps, functions and lines; of each but the maps, sizes of records are told.
    for at in [52, 80, 104, 108, 128, 144, 148, 168, 220, 224] {
        info.put(at, &[0; 4]);
    }
    for at in [88, 96, 192, 200, 208] {
        info.put(at, &[0; 8]);
    }
    for (at, size) in [(132, 8u32), (172, 16), (176, 8)] {
        info.put(at, &size.to_le_bytes());
    }
    info.put(Info::JITED_LEN, &[0; 4]);
    let code = loaded.program.code().as_bytes();
    let (room, tags) = (info.word(Info::LEN) as usize, info.word(Info::TAGS));
    info.put(Info::LEN, &[0; 4]);
    info.put(Info::TAGS, &[0; 4]);
    if may(c, Cap::BPF).is_ok() {
        info.put(Info::LEN, &(code.len() as u32).to_le_bytes());
        info.put(Info::TAGS, &1u32.to_le_bytes());
        if room > 0 {
            let part = code.get(..room.min(code.len())).unwrap_or_default();
            c.write_bytes(info.long(Info::CODE), part)?;
        }
        if tags > 0 {
            c.write_bytes(info.long(Info::TAG_LIST), &tag)?;
        }
    }
    let len = len.min(INFO as u32);
    c.write_bytes(to, info.0.get(..len as usize).unwrap_or_default())?;
    c.write_value(attr.at + LEN, &len)?;
    Ok(0)
}
