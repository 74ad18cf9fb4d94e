//! Turns text into the configuration's types. As with runc, unknown capabilities are ignored with a warning, so that a
//! newer client's list does not keep a container from starting.

use crate::{caps, place};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The names of a process's sets of capabilities.
const SETS: [&str; 5] = ["bounding", "effective", "inheritable", "permitted", "ambient"];

/// Parses a configuration, or with an empty `at` a process (its capabilities are below `at`). Adds what was left out to
/// `warnings`.
pub(crate) fn parse<T: DeserializeOwned>(
    text: &str,
    at: &str,
    warnings: &mut Vec<String>,
) -> Result<T, String> {
    // The error of the text as it is has the line that it is about.
    let first = match serde_json::from_str(text) {
        Ok(parsed) => return Ok(parsed),
        Err(error) => place::described(text, &error),
    };
    let Ok(mut value) = serde_json::from_str::<Value>(text) else { return Err(first) };
    let mut dropped = Vec::new();
    if let Some(process) = value.pointer_mut(at) {
        for set in SETS {
            if let Some(Value::Array(names)) = process.pointer_mut(&format!("/capabilities/{set}")) {
                names.retain(|name| match name {
                    Value::String(name) if caps::bit(name).is_err() => {
                        dropped.push(name.clone());
                        false
                    }
                    _ => true,
                });
            }
        }
    }
    if dropped.is_empty() {
        return Err(first);
    }
    let parsed = serde_json::from_value(value).map_err(|_| first)?;
    dropped.sort_unstable();
    dropped.dedup();
    warnings.push(format!("process.capabilities: unknown {} ignored", dropped.join(", ")));
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use oci_spec::runtime::{Process, Spec};

    #[test]
    fn unknown_capabilities_are_left_out() {
        let process = r#"{"user": {"uid": 0, "gid": 0}, "cwd": "/", "capabilities": {"bounding": ["CAP_KILL", "CAP_FUTURE"], "ambient": ["CAP_FUTURE"]}}"#;
        let mut warnings = Vec::new();
        let parsed: Process = parse(process, "", &mut warnings).unwrap();
        let sets = parsed.capabilities().clone().unwrap();
        assert_eq!(caps::mask(sets.bounding()).unwrap(), 1 << 5);
        assert_eq!(warnings, ["process.capabilities: unknown CAP_FUTURE ignored"]);

        let spec = format!(r#"{{"ociVersion": "1.0.2", "process": {process}}}"#);
        assert!(parse::<Spec>(&spec, "/process", &mut warnings).is_ok());
        assert_eq!(warnings.len(), 2);
    }

    #[test]
    fn other_errors_stay() {
        for text in ["{", r#"{"cwd": 1}"#, r#"{"cwd": "/", "capabilities": {"bounding": [1]}}"#] {
            assert!(parse::<Process>(text, "", &mut Vec::new()).is_err(), "{text}");
        }
    }
}
