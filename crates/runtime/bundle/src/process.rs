//! The process of a configuration.

use crate::{Result, caps, fail, scheduling};
use oci_spec::runtime::{PosixRlimit, Process};
use spec::{CapabilitySets, ProcessSpec, RlimitSpec};
use std::collections::HashMap;

/// Names of the resource limits in the order of their numbers.
const RLIMITS: [&str; 16] = [
    "RLIMIT_CPU",
    "RLIMIT_FSIZE",
    "RLIMIT_DATA",
    "RLIMIT_STACK",
    "RLIMIT_CORE",
    "RLIMIT_RSS",
    "RLIMIT_NPROC",
    "RLIMIT_NOFILE",
    "RLIMIT_MEMLOCK",
    "RLIMIT_AS",
    "RLIMIT_LOCKS",
    "RLIMIT_SIGPENDING",
    "RLIMIT_MSGQUEUE",
    "RLIMIT_NICE",
    "RLIMIT_RTPRIO",
    "RLIMIT_RTTIME",
];

/// Checks the process of a configuration, or of an `exec`, and translates it for the kernel.
pub fn translate(process: &Process) -> Result<ProcessSpec> {
    let args = process.args().clone().unwrap_or_default();
    if args.is_empty() || args[0].is_empty() {
        fail!("process.args must name a program");
    }
    let env = process.env().clone().unwrap_or_default();
    if let Some(text) = args.iter().chain(&env).find(|text| text.contains('\0')) {
        fail!("process.args or process.env holds a NUL byte: {text:?}");
    }
    if let Some(text) = env.iter().find(|text| !text.contains('=')) {
        fail!("process.env entry {text:?} is not of the form NAME=value");
    }
    let cwd = process.cwd().to_string_lossy().into_owned();
    if !cwd.starts_with('/') {
        fail!("process.cwd {cwd:?} must be an absolute path");
    }
    let mut capabilities = CapabilitySets::default();
    if let Some(sets) = process.capabilities() {
        capabilities = CapabilitySets {
            bounding: caps::mask(sets.bounding())?,
            effective: caps::mask(sets.effective())?,
            inheritable: caps::mask(sets.inheritable())?,
            permitted: caps::mask(sets.permitted())?,
            ambient: caps::mask(sets.ambient())?,
        };
        // The kernel lets nothing else become ambient.
        capabilities.ambient &= capabilities.permitted & capabilities.inheritable;
    }
    let user = process.user();
    Ok(ProcessSpec {
        args,
        env: last_of_each(env),
        default_path: None,
        cwd,
        create_cwd: true,
        uid: user.uid(),
        gid: user.gid(),
        additional_gids: user.additional_gids().clone().unwrap_or_default(),
        umask: user.umask().unwrap_or(0o022),
        capabilities,
        no_new_privileges: process.no_new_privileges().unwrap_or(false),
        seccomp: None,
        rlimits: rlimits(process)?,
        terminal: process.terminal().unwrap_or(false),
        oom_score_adj: oom_score_adj(process)?,
        set_home: true,
        io_priority: process.io_priority().as_ref().map(scheduling::io_priority).transpose()?,
        scheduler: process.scheduler().as_ref().map(scheduling::scheduler).transpose()?,
    })
}

/// Of a variable that is given more than once the last value counts, in the place of the first.
fn last_of_each(env: Vec<String>) -> Vec<String> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut kept: Vec<String> = Vec::with_capacity(env.len());
    for entry in env {
        let name = entry.split('=').next().unwrap_or_default().to_string();
        match places.get(&name).and_then(|at| kept.get_mut(*at)) {
            Some(earlier) => *earlier = entry,
            None => {
                places.insert(name, kept.len());
                kept.push(entry);
            }
        }
    }
    kept
}

fn rlimits(process: &Process) -> Result<Vec<RlimitSpec>> {
    let mut all: Vec<RlimitSpec> = Vec::new();
    for limit in process.rlimits().iter().flatten() {
        let spec = rlimit(limit)?;
        if all.iter().any(|other| other.resource == spec.resource) {
            fail!("process.rlimits: {} is given twice", limit.typ());
        }
        all.push(spec);
    }
    Ok(all)
}

fn oom_score_adj(process: &Process) -> Result<i32> {
    match process.oom_score_adj() {
        Some(value) if !(-1000..=1000).contains(&value) => {
            fail!("process.oomScoreAdj {value} is not valid; use -1000 to 1000")
        }
        value => Ok(value.unwrap_or_else(inherited_oom_score_adj)),
    }
}

/// What a container that asks for nothing gets: the caller's.
pub(crate) fn inherited_oom_score_adj() -> i32 {
    let text = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

fn rlimit(limit: &PosixRlimit) -> Result<RlimitSpec> {
    let name = limit.typ().to_string();
    let Some(resource) = RLIMITS.iter().position(|known| *known == name) else {
        fail!("process.rlimits: unknown type {name:?}");
    };
    if limit.soft() > limit.hard() {
        fail!("process.rlimits: the soft limit of {name} is above the hard limit");
    }
    Ok(RlimitSpec { resource: resource as u32, soft: limit.soft(), hard: limit.hard() })
}
