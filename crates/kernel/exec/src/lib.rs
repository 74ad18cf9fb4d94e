//! execve(2): everything that can fail happens in a fresh address space first; only then do the other threads end and the old
//! memory go (`task::Current::replace_program`).
//!
//! [`exec`] goes through the interpreters of scripts (`script`), reads the ELF headers (crate `elf`), computes the new credentials
//! (`creds`), maps the program (`load`) and writes its initial stack (`stack`). `trace_points` tells trace sessions.

#![forbid(unsafe_code)]

mod creds;
mod head;
mod load;
mod policing;
mod privacy;
mod script;
mod stack;
pub mod trace_points;

use crate::head::Head;
use crate::trace_points::NewProgram;
use abi::{Errno, Result, Signal, libc};
use caller::Limits;
use elf::{FileHeader, Image};
use std::sync::Arc;
use task::{Current, SysErr, SysResult};
use vfs::OpenFile;

/// Longest single argument or environment string.
pub const MAX_ARG_STRLEN: usize = 128 << 10;
/// More of a command line than the host shows.
const MAX_TITLE: usize = 4096;

/// A program to run.
pub struct Program {
    /// The opened file; execute permission was checked.
    pub file: Arc<OpenFile>,
    /// The name that was given, for AT_EXECFN and the task's name; of a script, too.
    pub filename: Vec<u8>,
    /// Arguments.
    pub argv: Vec<Vec<u8>>,
    /// Environment.
    pub envp: Vec<Vec<u8>>,
    /// A descriptor that is closed on exec names the file: scripts cannot be run from it (ENOENT).
    pub inaccessible: bool,
}

impl Program {
    /// The name that the task gets.
    fn name(&self) -> &[u8] {
        self.filename.rsplit(|&b| b == b'/').next().unwrap_or(&self.filename)
    }

    /// The arguments as process lists show them.
    fn title(&self) -> Vec<u8> {
        let mut line = Vec::new();
        for (i, arg) in self.argv.iter().enumerate() {
            if i > 0 {
                line.push(b' ');
            }
            line.extend_from_slice(arg.get(..MAX_TITLE).unwrap_or(arg));
            if line.len() >= MAX_TITLE {
                break;
            }
        }
        line
    }

    /// E2BIG when arguments and environment take more than a quarter of the stack limit, or one of them is too long.
    fn check_arg_space(&self, stack_limit: u64) -> Result<()> {
        let limit = (stack_limit / 4).clamp(128 << 10, 6 << 20);
        let mut total = self.filename.len() as u64 + 1;
        for s in self.argv.iter().chain(&self.envp) {
            if s.len() >= MAX_ARG_STRLEN {
                return Err(Errno::E2BIG);
            }
            total += s.len() as u64 + 1 + 8;
        }
        if total > limit { Err(Errno::E2BIG) } else { Ok(()) }
    }
}

/// Replaces the program. On success the registers are those of the new one.
pub fn exec(c: &mut Current, mut p: Program) -> SysResult {
    script::resolve(c, &mut p)?;
    p.check_arg_space(c.rlimit(libc::RLIMIT_STACK as i32))?;
    let head = Head::read(c, &p.file)?;
    let image = elf::parse(&mut |o, b| head.read_at(c, &p.file, o, b))?;
    let interp = match &image.interp {
        Some(path) => Some(open_interpreter(c, path)?),
        None => None,
    };
    let interpreter = interp.as_ref().map(|(file, _)| file.clone());
    policing::decide(c, &p)?;
    let guard = c.begin_exec()?;
    let creds = creds::of_program(c, &p.file)?;
    policing::decide_credentials(c, &creds)?;
    let broken = image.broken || interp.as_ref().is_some_and(|(_, i)| i.broken);
    let loaded = if broken { Err(Errno::EFAULT) } else { load::load(c, &p, &image, interp, &creds) };
    let loaded = match loaded {
        Ok(l) => l,
        // The segments are not where they can be, or the file ends before them: Linux finds out too late to go back.
        Err(Errno::EFAULT) => {
            c.kill_by(Signal::SIGSEGV);
            return Err(SysErr::NoReturn);
        }
        Err(e) => return Err(e.into()),
    };
    c.replace_program(loaded, p.name(), creds, guard)?;
    let Program { file, filename, argv, envp, .. } = &p;
    // The first program of a container is told when the container starts, not when it is made.
    if c.task.group.container.first() != 0 {
        let files = std::iter::once(file).chain(&interpreter);
        trace_points::program_runs(c, &NewProgram { file, filename, argv, envp }, files);
    }
    Err(SysErr::NoReturn)
}

/// Opens a file for execution, relative to the working directory.
pub fn open_program(c: &Current, path: &[u8]) -> Result<Arc<OpenFile>> {
    let view = c.fs().view();
    namei::opening::open_exec(c, &view, &namei::lookup::Start::Cwd, path, namei::lookup::Lookup::FOLLOW)
        .map_err(caller::retry::Failure::errno)
}

fn open_interpreter(c: &Current, path: &[u8]) -> Result<(Arc<OpenFile>, Image)> {
    if path.is_empty() {
        // The working directory, which is no file.
        return Err(Errno::EACCES);
    }
    let f = open_program(c, path)?;
    let head = Head::read(c, &f)?;
    vfs::notify::by_file(c, &f, vfs::notify::event::ACCESS);
    if head.len() < size_of::<FileHeader>() {
        return Err(Errno::EIO);
    }
    let image = elf::parse(&mut |o, b| head.read_at(c, &f, o, b)).map_err(|e| match e {
        Errno::ENOEXEC => Errno::ELIBBAD,
        e => e,
    })?;
    Ok((f, image))
}
