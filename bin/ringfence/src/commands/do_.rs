//! `ringfence do`: one command on the host's files.

use crate::cli::{Do, Global};
use crate::{Failure, container};
use bundle::{HostCommand, Options, for_host_command};
use rustix::process::umask;
use sandbox::terminal;
use spec::Overlay;

pub(crate) fn run(global: &Global, args: &Do) -> Result<u8, Failure> {
    let signals = container::signals()?;
    let rootless = container::rootless(global);
    let mask = umask(rustix::fs::Mode::empty());
    umask(mask);
    let as_caller = |id: u32| if rootless { 0 } else { id };
    let command = HostCommand {
        id: format!("do-{}", std::process::id()),
        hostname: container::hostname(),
        root: args.root.clone(),
        cwd: cwd(args)?,
        volumes: args.volume.clone(),
        args: args.args.clone(),
        env: environment(),
        uid: as_caller(rustix::process::geteuid().as_raw()),
        gid: as_caller(rustix::process::getegid().as_raw()),
        additional_gids: match rootless {
            true => Vec::new(),
            false => rustix::process::getgroups()?.into_iter().map(|gid| gid.as_raw()).collect(),
        },
        umask: mask.bits(),
        rlimits: container::callers_limits(),
        terminal: terminal::interactive(),
    };
    // The host's own files are never written through: that is what --volume is for.
    let options = Options { root_overlay: Overlay::Memory, ..container::options(global) };
    let prepared = for_host_command(command, &options)?;
    container::run_unnamed(global, prepared, &signals, "do")
}

fn cwd(args: &Do) -> Result<String, Failure> {
    if let Some(cwd) = &args.cwd {
        return match cwd.starts_with('/') {
            true => Ok(cwd.clone()),
            false => Err(format!("--cwd {cwd:?} must be an absolute path").into()),
        };
    }
    if args.root.as_os_str() != "/" {
        return Ok("/".into());
    }
    match std::env::current_dir() {
        Ok(dir) => Ok(dir.to_string_lossy().into_owned()),
        Err(error) => Err(format!("the current directory: {error}; choose one with --cwd").into()),
    }
}

/// The caller's environment, except for what is not text.
fn environment() -> Vec<String> {
    std::env::vars_os()
        .filter_map(|(name, value)| match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) => Some(format!("{name}={value}")),
            (Ok(name), Err(_)) | (Err(_), Ok(name)) => {
                log::warn!("an environment variable that is not UTF-8 is left out (near {name:?})");
                None
            }
            (Err(_), Err(_)) => None,
        })
        .collect()
}
