//! Where in a text of JSON an error is, as the name of a field.

use serde_json::error::Category;
use std::fmt::Write;

/// An object or array that is open where the error is.
enum Open {
    /// With the key of the value that is read.
    Object(Option<String>),
    /// With the number of the element.
    Array(usize),
}

/// An error of a text, with the field that it is about.
pub(crate) fn described(text: &str, error: &serde_json::Error) -> String {
    if error.classify() != Category::Data {
        return error.to_string();
    }
    let lines: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    // The column counts the last byte that was read, which may end the value.
    let end = (lines + error.column().saturating_sub(1)).min(text.len());
    let mut open = open_at(text.as_bytes().get(..end).unwrap_or_default());
    let what = error.to_string();
    if what.starts_with("missing field")
        && let Some(Open::Object(key)) = open.last_mut()
    {
        // The object lacks it, not the value before its end.
        *key = None;
    }
    match name(&open) {
        name if name.is_empty() => what,
        name => format!("{name}: {what}"),
    }
}

/// What is open at the end of the beginning of a text.
fn open_at(text: &[u8]) -> Vec<Open> {
    let mut open: Vec<Open> = Vec::new();
    let mut last: Vec<u8> = Vec::new();
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => {
                last.clear();
                while let Some(byte) = bytes.next().filter(|byte| **byte != b'"') {
                    last.push(*byte);
                    if *byte == b'\\' {
                        last.extend(bytes.next());
                    }
                }
            }
            b'{' => open.push(Open::Object(None)),
            b'[' => open.push(Open::Array(0)),
            b'}' | b']' => {
                open.pop();
            }
            b':' => {
                if let Some(Open::Object(key)) = open.last_mut() {
                    *key = Some(String::from_utf8_lossy(&last).into_owned());
                }
            }
            b',' => match open.last_mut() {
                Some(Open::Array(index)) => *index += 1,
                Some(Open::Object(key)) => *key = None,
                None => {}
            },
            _ => {}
        }
    }
    open
}

fn name(open: &[Open]) -> String {
    let mut name = String::new();
    for part in open {
        let _ = match part {
            Open::Object(Some(key)) if name.is_empty() => write!(name, "{key}"),
            Open::Object(Some(key)) => write!(name, ".{key}"),
            Open::Object(None) => Ok(()),
            Open::Array(index) => write!(name, "[{index}]"),
        };
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use oci_spec::runtime::Spec;

    #[test]
    fn fields_are_named() {
        let says = |text: &str| described(text, &serde_json::from_str::<Spec>(text).unwrap_err());
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
}
