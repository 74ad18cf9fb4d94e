//! Turns text into the configuration's types. As with runc, unknown capabilities are ignored with a warning, so that a
//! newer client's list does not keep a container from starting.

use crate::caps;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::error::Category;

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
        Err(error) => described::<T>(text, &error),
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

/// An error of a text, with the field that it is about.
fn described<T: DeserializeOwned>(text: &str, error: &serde_json::Error) -> String {
    if error.classify() != Category::Data {
        return error.to_string();
    }
    // Once more, since keeping the path costs.
    let again = serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_str(text));
    match again.err().map(|error| error.path().to_string()) {
        Some(path) if path != "." => format!("{path}: {error}"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oci_spec::runtime::{Process, Spec};

    #[test]
    fn fields_are_named() {
        let says = |text: &str| described::<Spec>(text, &serde_json::from_str::<Spec>(text).unwrap_err());
        for (text, start) in [
            (r#"{"ociVersion": 5}"#, "ociVersion: invalid type"),
            (
                "{\"ociVersion\": \"1.0.2\",\n \"process\": {\"user\": {\"uid\": 0, \"gid\": 0}, \"cwd\": 7}}",
                "process.cwd: invalid",
            ),
            (
                r#"{"ociVersion": "1.0.2", "process": {"user": {"uid": 0, "gid": 0}, "args": ["a", 1, "b"], "cwd": "/"}}"#,
                "process.args[1]: ",
            ),
            (
                r#"{"ociVersion": "1.0.2", "mounts": [{"destination": "/a"}, {"type": "x"}]}"#,
                "mounts[1]: missing field",
            ),
            (
                r#"{"ociVersion": "1.0.2", "mounts": [{"destination": "/a\"]", "options": "ro"}]}"#,
                "mounts[0].options: ",
            ),
            (r#"{"ociVersion": "1.0.2""#, "EOF"),
            (r#"{"process": {}}"#, "process: missing field"),
        ] {
            assert!(says(text).starts_with(start), "{text}: {}", says(text));
        }
    }

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
