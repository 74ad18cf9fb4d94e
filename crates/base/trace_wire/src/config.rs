//! The JSON of a session.
//!
//! Unknown keys are errors: a misspelt one would silently watch less than was asked for.

use crate::points::{ContextFields, OptionalFields, Points};
use crate::session::{Request, Retry};
use serde::Deserialize;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// Name of the session if the file has none.
const DEFAULT_NAME: &str = "Default";

/// First and longest wait of a `remote` sink if the file has none.
const BACKOFF: Duration = Duration::from_micros(25);
const BACKOFF_MAX: Duration = Duration::from_millis(10);

/// Size at which a `file` sink begins another file, and how many it keeps, if the file has none.
const MAX_SIZE: u64 = 64 << 20;
const MAX_FILES: u32 = 8;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    trace_session: SessionJson,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionJson {
    #[serde(default)]
    name: String,
    #[serde(default)]
    points: Vec<PointJson>,
    #[serde(default)]
    ignore_missing: bool,
    #[serde(default)]
    sinks: Vec<SinkJson>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PointJson {
    name: String,
    #[serde(default)]
    optional_fields: Vec<String>,
    #[serde(default)]
    context_fields: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SinkJson {
    name: String,
    #[serde(default)]
    config: Value,
    #[serde(default)]
    ignore_setup_error: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RemoteJson {
    endpoint: PathBuf,
    #[serde(default)]
    retries: u32,
    backoff: Option<String>,
    backoff_max: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileJson {
    path: PathBuf,
    #[serde(default = "max_size")]
    max_size: u64,
    #[serde(default = "max_files")]
    max_files: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyJson {
    path: PathBuf,
    log: Option<PathBuf>,
    key: Option<PathBuf>,
}

fn max_size() -> u64 {
    MAX_SIZE
}

fn max_files() -> u32 {
    MAX_FILES
}

/// A session that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its name.
    pub name: String,
    /// Its points.
    pub points: Vec<Request>,
    /// Its sinks.
    pub sinks: Vec<SinkConfig>,
}

/// A sink that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkConfig {
    /// What it is.
    pub kind: SinkKind,
    /// The session begins without it when it cannot be set up.
    pub ignore_setup_error: bool,
}

/// Kinds of sinks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkKind {
    /// Nowhere.
    Null,
    /// A consumer that listens on a Unix socket.
    Remote {
        /// The socket's path on the host.
        endpoint: PathBuf,
        /// When the consumer does not keep up.
        retry: Retry,
    },
    /// Lines of JSON in a file of the host.
    File {
        /// The file.
        path: PathBuf,
        /// Bytes after which it becomes `PATH.1`, and another one is begun.
        max_size: u64,
        /// How many older files are kept.
        max_files: u32,
    },
    /// Rules that the kernel asks before operations act.
    Policy {
        /// The file with the rules.
        path: PathBuf,
        /// The log of decisions.
        log: Option<PathBuf>,
        /// The private key that signs the log.
        key: Option<PathBuf>,
    },
}

/// Reads a session: the object inside `trace_session`, or the whole.
pub fn parse(text: &str, points: &Points) -> Result<Config, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let whole = value.get("trace_session").is_some();
    // From the text, for the line of an error.
    let session = match whole {
        true => serde_json::from_str::<Whole>(text).map(|whole| whole.trace_session),
        false => serde_json::from_str::<SessionJson>(text),
    };
    let session = session.map_err(|error| error.to_string())?;
    let name = if session.name.is_empty() { DEFAULT_NAME.into() } else { session.name };
    if name.len() > 255 || name.chars().any(char::is_control) {
        return Err("the session's name is longer than 255 bytes or has control characters".into());
    }
    let mut requests: Vec<Request> = Vec::new();
    for point in &session.points {
        let Some(request) = resolve(point, points, session.ignore_missing)? else { continue };
        if requests.iter().any(|other| other.point == request.point) {
            return Err(format!("point {:?} is there twice", point.name));
        }
        requests.push(request);
    }
    let sinks: Vec<SinkConfig> = session.sinks.iter().map(sink).collect::<Result<_, _>>()?;
    let policies = sinks.iter().filter(|sink| matches!(sink.kind, SinkKind::Policy { .. })).count();
    if requests.is_empty() && (policies == 0 || policies < sinks.len()) {
        return Err("the session has no points; \"trace metadata\" lists them".into());
    }
    if sinks.is_empty() {
        return Err("the session has no sinks; use remote, file, policy or null".into());
    }
    if policies > 1 {
        return Err("the session has several policies; put their rules in one file".into());
    }
    Ok(Config { name, points: requests, sinks })
}

/// The point's number and fields; nothing for one that may be missing.
fn resolve(asked: &PointJson, points: &Points, ignore_missing: bool) -> Result<Option<Request>, String> {
    let name = &asked.name;
    let Some(point) = points.find(name) else {
        let error = format!("point {name:?} does not exist; \"trace metadata\" lists the points");
        return if ignore_missing { Ok(None) } else { Err(error) };
    };
    let mut optional = OptionalFields::empty();
    for field in &asked.optional_fields {
        match OptionalFields::named(field).filter(|field| point.optional.contains(*field)) {
            Some(field) => optional |= field,
            None if ignore_missing => {}
            None => {
                let there = point.optional.names();
                return Err(format!("point {name:?} has no optional field {field:?}; it has {there:?}"));
            }
        }
    }
    let mut context = ContextFields::empty();
    for field in &asked.context_fields {
        match ContextFields::named(field) {
            Some(field) => context |= field,
            None if ignore_missing => {}
            None => {
                let there = ContextFields::all().names();
                return Err(format!("there is no context field {field:?}; there are {there:?}"));
            }
        }
    }
    Ok(Some(Request { point: point.point.index(), optional: optional.bits(), context: context.bits() }))
}

fn sink(asked: &SinkJson) -> Result<SinkConfig, String> {
    let name = asked.name.as_str();
    let config = || match &asked.config {
        Value::Null => Value::Object(serde_json::Map::new()),
        other => other.clone(),
    };
    let wrong = |error: serde_json::Error| format!("sink {name:?}: {error}");
    let kind = match name {
        "null" => match config().as_object().is_some_and(|config| config.is_empty()) {
            true => SinkKind::Null,
            false => return Err("sink \"null\" takes no configuration".into()),
        },
        "remote" => {
            let config: RemoteJson = serde_json::from_value(config()).map_err(wrong)?;
            let of = |text: &Option<String>, otherwise| match text {
                None => Ok(otherwise),
                Some(text) => duration(text)
                    .ok_or_else(|| format!("sink {name:?}: {text:?} is no duration; write 25us, 10ms or 1s")),
            };
            let backoff = of(&config.backoff, BACKOFF)?;
            let backoff_max = of(&config.backoff_max, BACKOFF_MAX)?;
            if backoff > backoff_max {
                return Err(format!("sink {name:?}: backoff is longer than backoff_max"));
            }
            if !config.endpoint.is_absolute() {
                return Err(format!("sink {name:?}: endpoint must be an absolute path"));
            }
            let retry = Retry { retries: config.retries, backoff, backoff_max };
            SinkKind::Remote { endpoint: config.endpoint, retry }
        }
        "file" => {
            let config: FileJson = serde_json::from_value(config()).map_err(wrong)?;
            if !config.path.is_absolute() {
                return Err(format!("sink {name:?}: path must be absolute"));
            }
            let FileJson { path, max_size, max_files } = config;
            SinkKind::File { path, max_size, max_files }
        }
        "policy" => {
            let PolicyJson { path, log, key } = serde_json::from_value(config()).map_err(wrong)?;
            if [Some(&path), log.as_ref(), key.as_ref()].into_iter().flatten().any(|path| !path.is_absolute())
            {
                return Err(format!("sink {name:?}: paths must be absolute"));
            }
            if key.is_some() && log.is_none() {
                return Err(format!("sink {name:?}: key signs the log, and there is none"));
            }
            if asked.ignore_setup_error {
                return Err(format!("sink {name:?}: a container without its policy must not start"));
            }
            SinkKind::Policy { path, log, key }
        }
        _ => return Err(format!("there is no sink {name:?}; use remote, file, policy or null")),
    };
    Ok(SinkConfig { kind, ignore_setup_error: asked.ignore_setup_error })
}

/// A duration as Go writes it: numbers with units, as `1m2.5s` or `25us`.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest.get(..digits)?.parse().ok()?;
        let unit = rest.get(digits..)?;
        let end = unit.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(unit.len());
        let seconds = match unit.get(..end)? {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total = total.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = unit.get(end..)?;
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::common::MessageType;
    use crate::points::{Call, Point};

    fn points() -> Points {
        let openat = Call {
            nr: 257,
            name: "openat",
            schema: Some((MessageType::MESSAGE_SYSCALL_OPEN, OptionalFields::FD_PATH)),
        };
        Points::new([openat].into_iter())
    }

    fn error(text: &str) -> String {
        parse(text, &points()).unwrap_err()
    }

    const POLICY: &str = r#"{"name": "policy", "config": {"path": "/p.yaml", "log": "/l"}}"#;

    #[test]
    fn a_policy_needs_no_points() {
        let config = parse(&format!(r#"{{"name": "policy", "sinks": [{POLICY}]}}"#), &points()).unwrap();
        let kind = SinkKind::Policy { path: "/p.yaml".into(), log: Some("/l".into()), key: None };
        assert_eq!(config.sinks, [SinkConfig { kind, ignore_setup_error: false }]);
        assert!(config.points.is_empty());
    }

    #[test]
    fn a_session_is_read_in_both_forms() {
        let inner = r#"{"name": "Default", "points": [{"name": "syscall/openat/enter",
            "optional_fields": ["fd_path"], "context_fields": ["cwd", "time"]}],
            "sinks": [{"name": "remote", "config": {"endpoint": "/path.sock", "retries": 3, "backoff": "25us",
            "backoff_max": "10ms"}, "ignore_setup_error": true}]}"#;
        let config = parse(inner, &points()).unwrap();
        assert_eq!(
            config.points,
            [Request {
                point: Point::Call { nr: 257, raw: false, exit: false }.index(),
                optional: OptionalFields::FD_PATH.bits(),
                context: (ContextFields::CWD | ContextFields::TIME).bits(),
            }]
        );
        let retry =
            Retry { retries: 3, backoff: Duration::from_micros(25), backoff_max: Duration::from_millis(10) };
        assert_eq!(
            config.sinks,
            [SinkConfig {
                kind: SinkKind::Remote { endpoint: "/path.sock".into(), retry },
                ignore_setup_error: true
            }]
        );
        assert_eq!(parse(&format!("{{\"trace_session\": {inner}}}"), &points()).unwrap(), config);
    }

    #[test]
    fn errors_name_the_mistake() {
        let with = |points: &str, sinks: &str| format!(r#"{{"points": [{points}], "sinks": [{sinks}]}}"#);
        let (point, null) = (r#"{"name": "sentry/clone"}"#, r#"{"name": "null"}"#);
        assert!(parse(&with(point, null), &points()).is_ok());
        for (text, part) in [
            (with(r#"{"name": "sentry/nosuch"}"#, null), "does not exist"),
            (with(r#"{"name": "sentry/clone", "optional_fields": ["env"]}"#, null), "no optional field"),
            (with(r#"{"name": "sentry/clone", "context_fields": ["pwd"]}"#, null), "no context field"),
            (with(&format!("{point}, {point}"), null), "twice"),
            (with("", null), "no points"),
            (with(point, ""), "no sinks"),
            (with(point, r#"{"name": "syslog"}"#), "no sink"),
            (with(point, r#"{"name": "remote"}"#), "endpoint"),
            (with(point, r#"{"name": "remote", "config": {"endpoint": "a"}}"#), "absolute"),
            (
                with(point, r#"{"name": "remote", "config": {"endpoint": "/a", "backoff": "5"}}"#),
                "no duration",
            ),
            (with(point, r#"{"name": "remote", "config": {"endpoint": "/a", "backoff": "5s"}}"#), "longer"),
            (with(point, r#"{"name": "file", "config": {"path": "x"}}"#), "absolute"),
            (with("", r#"{"name": "policy", "config": {"log": "/l"}}"#), "missing field `path`"),
            (with("", r#"{"name": "policy", "config": {"path": "p"}}"#), "absolute"),
            (with("", r#"{"name": "policy", "config": {"path": "/p", "key": "/k"}}"#), "there is none"),
            (with("", &format!("{POLICY}, {POLICY}")), "several policies"),
            (with("", &format!("{POLICY}, {null}")), "no points"),
            (r#"{"pionts": []}"#.into(), "unknown field"),
            ("{".into(), "EOF"),
        ] {
            assert!(error(&text).contains(part), "{text}: {}", error(&text));
        }
    }

    #[test]
    fn what_is_missing_can_be_ignored() {
        let text = r#"{"ignore_missing": true, "sinks": [{"name": "null"}], "points": [{"name": "sentry/nosuch"},
            {"name": "sentry/clone", "optional_fields": ["x"], "context_fields": ["y", "cwd"]}]}"#;
        let config = parse(text, &points()).unwrap();
        assert_eq!(config.points.len(), 1);
        assert_eq!(config.points[0].context, ContextFields::CWD.bits());
    }

    #[test]
    fn durations_are_gos() {
        assert_eq!(duration("25us"), Some(Duration::from_micros(25)));
        assert_eq!(duration("1m2.5s"), Some(Duration::from_millis(62_500)));
        for bad in ["", "5", "us", "5x", "-1s", "1..2s"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }
}
