//! What the policies of a container were loaded from, in its directory.
//!
//! The kernel inside, which a guest may have taken over, is not asked for paths of the host.

use crate::directory::{Container, POLICIES};
use crate::{Error, Result};
use bundle::open_regular;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use trace_sinks::Source;
use trace_wire::config::{Config, SinkConfig, SinkKind};

/// Longest record that is read.
const MAX_RECORD: u64 = 1 << 20;
/// Most logs of one name.
const MAX_LOGS: u32 = 1_000_000;

/// A policy that was loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loaded {
    /// What from.
    #[serde(flatten)]
    pub source: Source,
    /// The log that was asked for; `source` may have one beside it, with a number.
    pub(crate) first_log: Option<PathBuf>,
}

/// The session of a policy.
pub fn session(name: &str, source: Source) -> Config {
    let Source { path, log, key } = source;
    let kind = SinkKind::Policy { path, log, key };
    let sinks = vec![SinkConfig { kind, ignore_setup_error: false }];
    Config { name: name.into(), points: Vec::new(), sinks }
}

/// Writes down what a session is loaded from, if it is a policy alone.
pub(crate) fn remember(container: &Container, config: &Config) -> Result<()> {
    record(container, config, None)
}

/// The same for a policy whose log may have another name than was asked for.
pub(crate) fn record(container: &Container, config: &Config, first_log: Option<PathBuf>) -> Result<()> {
    let [SinkConfig { kind: SinkKind::Policy { path, log, key }, .. }] = &config.sinks[..] else {
        return Ok(());
    };
    if !config.points.is_empty() {
        return Ok(());
    }
    let source = Source { path: path.clone(), log: log.clone(), key: key.clone() };
    let first_log = first_log.or_else(|| log.clone());
    let mut all = read(container)?;
    all.insert(config.name.clone(), Loaded { source, first_log });
    write(container, &all)
}

/// A log's name with a number: the first one that is free.
pub(crate) fn next_log(first: &Path) -> Result<PathBuf> {
    let numbered = |number: u32| {
        let mut name = first.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    // Whatever is there, a link or a directory as well, is not ours.
    let is_free = |path: &PathBuf| fs::symlink_metadata(path).is_err();
    let free = (2..MAX_LOGS).map(numbered).find(is_free);
    free.ok_or_else(|| Error::from(format!("there are too many logs {}", first.display())))
}

/// What was loaded, by the names of the sessions.
pub(crate) fn read(container: &Container) -> Result<BTreeMap<String, Loaded>> {
    let mut text = String::new();
    match open_regular(&container.path().join(POLICIES)) {
        Ok(file) => file.take(MAX_RECORD).read_to_string(&mut text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error.into()),
    };
    serde_json::from_str(&text)
        .map_err(|error| format!("{}: {error}; load the policy again", POLICIES).into())
}

/// Readers see the old record or the new one.
pub(crate) fn write(container: &Container, all: &BTreeMap<String, Loaded>) -> Result<()> {
    let text = serde_json::to_vec(all).map_err(|error| error.to_string())?;
    let temporary = container.path().join("policies.tmp");
    let written =
        fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, container.path().join(POLICIES)));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    Ok(written?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;
    use crate::testing::{StateDir, record as a_record};

    fn source(log: &str) -> Source {
        Source { path: "/p.yaml".into(), log: Some(log.into()), key: None }
    }

    #[test]
    fn what_was_loaded_is_remembered() {
        let dir = StateDir::new("policies");
        let _held = dir.living("x", &a_record("x", Status::Running, false));
        let (container, _) = dir.settings().find("x").unwrap();
        assert!(read(&container).unwrap().is_empty());
        remember(&container, &session("policy", source("/l"))).unwrap();
        record(&container, &session("other", source("/l.2")), Some("/l".into())).unwrap();
        let mut mixed = session("mixed", source("/l"));
        mixed.sinks.push(SinkConfig { kind: SinkKind::Null, ignore_setup_error: false });
        remember(&container, &mixed).unwrap();
        let all = read(&container).unwrap();
        assert_eq!(all.keys().collect::<Vec<_>>(), ["other", "policy"]);
        assert_eq!(all["policy"], Loaded { source: source("/l"), first_log: Some("/l".into()) });
        assert_eq!(all["other"], Loaded { source: source("/l.2"), first_log: Some("/l".into()) });
    }

    #[test]
    fn logs_get_numbers() {
        let dir = StateDir::new("logs");
        fs::create_dir_all(&dir.0).unwrap();
        let log = dir.0.join("log");
        assert_eq!(next_log(&log).unwrap(), dir.0.join("log.2"));
        std::os::unix::fs::symlink("nowhere", dir.0.join("log.2")).unwrap();
        assert_eq!(next_log(&log).unwrap(), dir.0.join("log.3"));
    }
}
