//! Standard streams: FIFOs that containerd made, files, and programs that log.
//!
//! A container's process reads and writes them itself; nothing is copied on the way. The shim keeps the other end of
//! every FIFO open. Otherwise the process could see the end of its input before the client closes it
//! ([`StreamEnds::close_stdin`]), or get SIGPIPE when a client leaves.

use crate::runtime::Streams;
use rustix::fs::{CWD, FileType, Gid, Mode, OFlags, Uid, fchown, fcntl_setfl, fstat, openat};
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What a request says of the streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stdio {
    pub(crate) stdin: String,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) terminal: bool,
}

/// The ends of the streams that the shim keeps open.
#[derive(Debug, Default)]
pub(crate) struct StreamEnds {
    /// Read ends of the output FIFOs.
    readers: Vec<OwnedFd>,
    /// Write end of the input FIFO.
    stdin: Option<OwnedFd>,
    logger: Option<hostsys::spawn::Child>,
}

/// The container that output belongs to, for a program that logs it.
pub(crate) struct LogCaller<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) id: &'a str,
    /// User and group that may open the streams anew.
    pub(crate) owner: (u32, u32),
}

/// Where output goes.
#[derive(Debug, PartialEq, Eq)]
enum Output<'a> {
    Null,
    /// A FIFO, or a file that is there.
    Path(&'a str),
    /// `file://PATH`
    File(&'a str),
    /// `binary://PROGRAM?ARGUMENT...`
    Program(&'a str, Vec<String>),
}

fn parse(uri: &str) -> Result<Output<'_>, String> {
    if uri.is_empty() {
        return Ok(Output::Null);
    }
    let Some((scheme, rest)) = uri.split_once("://") else { return Ok(Output::Path(uri)) };
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    match scheme {
        "fifo" => Ok(Output::Path(path)),
        "file" => Ok(Output::File(path)),
        "binary" => {
            let mut args = Vec::new();
            for pair in query.split('&').filter(|pair| !pair.is_empty()) {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                args.extend([name, value].into_iter().filter(|part| !part.is_empty()).map(decode));
            }
            Ok(Output::Program(path, args))
        }
        other => Err(format!("log URI scheme {other:?} is not supported; use fifo, file or binary")),
    }
}

/// Undoes the escapes of a URI's query.
fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let hex = more.get(..2).and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        rest = match (first, hex) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                &more[2..]
            }
            _ => {
                bytes.push(if *first == b'+' { b' ' } else { *first });
                more
            }
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn open(path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty())?)
}

fn null(write: bool) -> io::Result<OwnedFd> {
    open("/dev/null", if write { OFlags::WRONLY } else { OFlags::RDONLY })
}

impl Stdio {
    /// Opens the streams. With a terminal there is no standard error, and input does not block.
    pub(crate) fn open(&self, whose: &LogCaller<'_>) -> Result<(Streams, StreamEnds), String> {
        let mut held = StreamEnds::default();
        let told = |name: &str, path: &str, error: io::Error| format!("{name} {path}: {error}");
        let stdin = match self.stdin.as_str() {
            "" => null(false),
            path => held.input(path, self.terminal),
        }
        .map_err(|error| told("stdin", &self.stdin, error))?;
        let (stdout, stderr) = (parse(&self.stdout)?, parse(&self.stderr)?);
        let (stdout, stderr) = if let Output::Program(program, args) = &stdout {
            held.program(program, args, whose).map_err(|error| told("stdout", &self.stdout, error))?
        } else {
            let out = held.output(&stdout).map_err(|error| told("stdout", &self.stdout, error))?;
            let err = if self.terminal {
                null(true)
            } else if self.stderr == self.stdout {
                out.try_clone()
            } else {
                held.output(&stderr)
            };
            (out, err.map_err(|error| told("stderr", &self.stderr, error))?)
        };
        if self.terminal {
            // Copied to by a thread that must be able to end.
            fcntl_setfl(
                &stdout,
                rustix::fs::fcntl_getfl(&stdout).unwrap_or(OFlags::empty()) | OFlags::NONBLOCK,
            )
            .map_err(|error| format!("stdout {}: {error}", self.stdout))?;
        }
        let streams = Streams { stdin, stdout, stderr };
        if whose.owner != (0, 0) && !self.terminal {
            for fd in [&streams.stdin, &streams.stdout, &streams.stderr] {
                // What may be opened anew through /dev/stdout and the like.
                if fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo) {
                    let (uid, gid) = whose.owner;
                    fchown(fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
                        .map_err(|error| format!("owner {uid}:{gid} of a stream: {error}"))?;
                }
            }
        }
        Ok((streams, held))
    }
}

impl StreamEnds {
    fn input(&mut self, path: &str, stay_nonblocking: bool) -> io::Result<OwnedFd> {
        // Without waiting for the client, which may never come.
        let reader = open(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
        if is_fifo(&reader)? {
            self.stdin = Some(open(path, OFlags::WRONLY)?);
        }
        if !stay_nonblocking {
            fcntl_setfl(&reader, OFlags::empty())?;
        }
        Ok(reader)
    }

    fn output(&mut self, output: &Output<'_>) -> io::Result<OwnedFd> {
        match output {
            Output::Null => null(true),
            Output::Path(path) => {
                if !FileType::from_raw_mode(rustix::fs::stat(*path)?.st_mode).is_fifo() {
                    return open(path, OFlags::WRONLY | OFlags::APPEND);
                }
                self.readers.push(open(path, OFlags::RDONLY | OFlags::NONBLOCK)?);
                open(path, OFlags::WRONLY)
            }
            Output::File(path) => {
                if let Some(parent) = Path::new(path).parent() {
                    std::fs::create_dir_all(parent)?;
                }
                Ok(OpenOptions::new().create(true).append(true).open(path)?.into())
            }
            Output::Program(..) => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "a program takes stdout and stderr together"))
            }
        }
    }

    /// Starts a program that logs: it has the outputs as descriptors 3 and 4, and closes 5 when it is ready.
    fn program(
        &mut self,
        path: &str,
        args: &[String],
        whose: &LogCaller<'_>,
    ) -> io::Result<(OwnedFd, OwnedFd)> {
        let (exe, before) = executable(path)?;
        let (out, out_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let (err, err_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let (ready, ready_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let nothing = OwnedFd::from(File::open("/dev/null")?);
        let c = |text: String| CString::new(text).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
        let arguments = before.into_iter().chain([path.to_string()]).chain(args.iter().cloned());
        let arguments = arguments.map(c).collect::<io::Result<Vec<_>>>()?;
        let variables = [
            format!("CONTAINER_ID={}", whose.id),
            format!("CONTAINER_NAMESPACE={}", whose.namespace),
            format!("PATH={}", std::env::var("PATH").unwrap_or_default()),
        ];
        let variables = variables.into_iter().map(c).collect::<io::Result<Vec<_>>>()?;
        let sink = null(true)?;
        let program = hostsys::spawn::Program {
            exe: exe.as_fd(),
            args: &arguments,
            env: &variables,
            fds: &[
                nothing.as_fd(),
                sink.as_fd(),
                sink.as_fd(),
                out.as_fd(),
                err.as_fd(),
                ready_write.as_fd(),
            ],
            namespaces: hostsys::spawn::Namespaces::NONE,
            groups: &hostsys::spawn::Groups::default(),
        };
        self.logger = Some(hostsys::spawn::spawn(&program, |_, _| Ok(()))?);
        drop(ready_write);
        let mut byte = [0];
        rustix::io::retry_on_intr(|| rustix::io::read(&ready, &mut byte))?;
        Ok((out_write, err_write))
    }

    /// The client has sent all input.
    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Lets go of everything, and has the program that logs end: it has seen the end of its input.
    pub(crate) fn close(&mut self) {
        let Self { readers, stdin, logger } = std::mem::take(self);
        drop((readers, stdin));
        if let Some(logger) = logger {
            let gone = |ms| wait(&logger.pidfd, ms);
            if !gone(2000) {
                let _ = hostsys::process::pidfd_kill(logger.pidfd.as_fd(), 15);
                if !gone(1000) {
                    let _ = hostsys::process::pidfd_kill(logger.pidfd.as_fd(), 9);
                }
            }
        }
    }
}

/// Whether a descriptor becomes readable within so many milliseconds.
pub(crate) fn wait(fd: &OwnedFd, ms: i64) -> bool {
    let timeout = rustix::event::Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 };
    let mut fds = [rustix::event::PollFd::new(fd, rustix::event::PollFlags::IN)];
    matches!(rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, Some(&timeout))), Ok(n) if n > 0)
}

/// What to execute for a program, and the arguments in front of its path: a script's descriptor is closed by the time
/// that its interpreter would open it.
fn executable(path: &str) -> io::Result<(File, Vec<String>)> {
    let file = File::open(path)?;
    let mut start = [0; 256];
    let n = file.read_at(&mut start, 0)?;
    let start = String::from_utf8_lossy(&start[..n]);
    let Some(line) = start.strip_prefix("#!").and_then(|rest| rest.lines().next()) else {
        return Ok((file, Vec::new()));
    };
    let (interpreter, argument) = line.trim().split_once([' ', '\t']).unwrap_or((line.trim(), ""));
    let before = [interpreter, argument.trim()].into_iter().filter(|part| !part.is_empty());
    Ok((File::open(interpreter)?, before.map(String::from).collect()))
}

fn is_fifo(fd: &OwnedFd) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode).is_fifo())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_read() {
        assert_eq!(parse(""), Ok(Output::Null));
        assert_eq!(parse("/run/x"), Ok(Output::Path("/run/x")));
        assert_eq!(parse("fifo:///run/x"), Ok(Output::Path("/run/x")));
        assert_eq!(parse("file:///var/log/x?y=1"), Ok(Output::File("/var/log/x")));
        let args = ["--to", "a b", "now"].map(String::from).to_vec();
        assert_eq!(parse("binary:///bin/log?--to=a%20b&now"), Ok(Output::Program("/bin/log", args)));
        assert!(parse("tcp://x").unwrap_err().contains("tcp"));
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(decode("a+b%2Fc%zz%"), "a b/c%zz%");
    }
}
