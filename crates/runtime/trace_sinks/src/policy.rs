//! `policy` sinks: the file is checked outside, before the kernel gets it.

use crate::asking::Asked;
use crate::{Opened, asking, attend, decisions, pair};
use decision_log::{Key, Start};
use policy::{Action, Policy};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use trace_wire::session::Sink;

/// Longest file; the policy's own limit is less.
const MAX_FILE: u64 = 8 << 20;
/// Longest file of a key.
const MAX_KEY: u64 = 64 << 10;
/// Mistakes of a file that an error lists.
const MAX_MISTAKES: usize = 10;

/// What a policy is loaded from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The file.
    pub path: PathBuf,
    /// The log of its decisions.
    pub log: Option<PathBuf>,
    /// The private key that signs the log.
    pub key: Option<PathBuf>,
}

/// Reads a policy; all mistakes in the error, each with its place.
pub fn read(path: &Path) -> Result<(String, Policy), String> {
    let text = text(path, MAX_FILE).map_err(|error| format!("policy {}: {error}", path.display()))?;
    let policy = Policy::parse(&text).map_err(|mistakes| {
        let count = mistakes.len();
        let shown = mistakes.iter().take(MAX_MISTAKES).map(|mistake| {
            let rule = mistake.rule.as_ref().map(|rule| format!("{rule}: ")).unwrap_or_default();
            format!("{}:{}: {rule}{}", mistake.line, mistake.column, mistake.message)
        });
        let all = shown.collect::<Vec<_>>().join("; ");
        let rest = if count > MAX_MISTAKES { "; \"ringfence policy check\" lists the rest" } else { "" };
        format!("policy {}: {count} {}: {all}{rest}", path.display(), plural(count, "mistake"))
    })?;
    Ok((text, policy))
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { noun.into() } else { format!("{noun}s") }
}

/// A regular file of UTF-8.
fn text(path: &Path, most: u64) -> io::Result<String> {
    let file = File::from(rustix::fs::open(
        path,
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut text = String::new();
    file.take(most + 1).read_to_string(&mut text)?;
    match text.len() as u64 > most {
        true => Err(io::Error::other(format!("longer than {most} bytes"))),
        false => Ok(text),
    }
}

/// Whom rules ask; empty when none does.
fn asked(policy: &Policy) -> BTreeMap<u32, Asked> {
    let rules = policy.rules().iter().enumerate();
    let rules = rules.filter_map(|(at, rule)| {
        let ask = rule.ask.as_ref().filter(|_| rule.action == Action::Ask)?;
        Some((at as u32 + 1, ask))
    });
    let default = policy.ask(None).filter(|_| policy.default_action() == Action::Ask);
    let asked =
        |(rule, ask): (u32, &policy::Ask)| (rule, Asked { socket: ask.socket.clone(), timeout: ask.timeout });
    rules.chain(default.map(|ask| (asking::DEFAULT, ask))).map(asked).collect()
}

/// Adds a policy to a session. `sandbox`: its name, for the log.
pub(crate) fn add(opened: &mut Opened, source: &Source, sandbox: &str) -> Result<(), String> {
    let Source { path, log, key } = source;
    let (text, policy) = read(path)?;
    let asked = asked(&policy);
    let key = match key {
        Some(path) => Some(read_key(path)?),
        None => None,
    };
    let mut fds: Vec<OwnedFd> = Vec::new();
    if let Some(log) = log {
        let start = Start::new(sandbox, text.as_bytes(), decisions::now());
        let (file, new) = decisions::begin(log, start)
            .map_err(|error| format!("log of decisions {}: {error}", log.display()))?;
        opened.logs.extend(new);
        let (ours, theirs) = pair()?;
        rustix::io::ioctl_fionbio(&ours, true).map_err(|error| error.to_string())?;
        // How many decisions the log's file did not take: the process outside writes, the kernel reads.
        let unwritten = counter().map_err(|error| format!("log of decisions: {error}"))?;
        fds.push(ours);
        fds.push(unwritten.try_clone().map_err(|error| error.to_string())?);
        attend(opened, theirs, &crate::Duty::Decisions { log: log.clone(), key }, vec![file, unwritten])?;
    }
    if !asked.is_empty() {
        let (ours, theirs) = pair()?;
        fds.push(ours);
        attend(opened, theirs, &crate::Duty::Ask { asked: asked.clone() }, Vec::new())?;
    }
    opened.session.sinks.push(Sink::Policy { text, log: log.is_some(), asks: !asked.is_empty() });
    opened.fds.extend(fds);
    Ok(())
}

/// A memfd with the number 0.
fn counter() -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create("unwritten", rustix::fs::MemfdFlags::CLOEXEC)?;
    rustix::io::pwrite(&fd, &0u64.to_le_bytes(), 0)?;
    Ok(fd)
}

/// The text of a private key.
fn read_key(path: &Path) -> Result<String, String> {
    let failed = |why: String| format!("key {}: {why}", path.display());
    let pem = text(path, MAX_KEY).map_err(|error| failed(error.to_string()))?;
    Key::from_pem(&pem).map_err(failed)?;
    Ok(pem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn those_that_are_asked_are_found() {
        let policy = Policy::parse(
            "rules:\n- {point: file/open, path: /a, action: deny}\n- {point: file/open, path: /b, action: ask}\n\
             ask: {socket: /s, timeout: 2s, default: deny}\n",
        );
        let policy = policy.unwrap();
        let expected = Asked { socket: "/s".into(), timeout: Duration::from_secs(2) };
        assert_eq!(asked(&policy), BTreeMap::from([(2, expected.clone())]));
        let policy =
            Policy::parse("rules: []\ndefault: ask\nask: {socket: /s, timeout: 2s, default: deny}\n")
                .unwrap();
        assert_eq!(asked(&policy), BTreeMap::from([(asking::DEFAULT, expected)]));
        assert!(asked(&Policy::parse("rules: []").unwrap()).is_empty());
    }

    #[test]
    fn mistakes_and_files_of_other_kinds_are_named() {
        let dir = std::env::temp_dir().join(format!("ringfence-policy-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("p.yaml");
        std::fs::write(&file, "rules:\n- {point: file/opne, action: deny}\n").unwrap();
        let error = read(&file).unwrap_err();
        assert!(
            error.contains("1 mistake:") && error.contains("2:11: ") && error.contains("file/open"),
            "{error}"
        );
        assert!(read(Path::new("/dev/zero")).unwrap_err().contains("not a regular file"));
        assert!(read(&dir.join("none")).unwrap_err().contains("No such file"));
        assert!(read_key(&file).err().unwrap().contains("no private Ed25519 key"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
