//! Which messages a watcher wants to see: by the values of their fields.

use serde_json::Value;
use trace_wire::{MessageType, json, packet};

/// A field of a message and what it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Names of fields, each in the one before.
    path: Vec<String>,
    pattern: String,
    /// The field must be something else.
    not: bool,
}

impl Filter {
    /// `FIELD=PATTERN` or `FIELD!=PATTERN`. A field in another one is written with a dot, `*` in a pattern stands for any text.
    pub fn parse(text: &str) -> Result<Filter, String> {
        let (field, pattern) = text
            .split_once('=')
            .ok_or("write FIELD=PATTERN, as pathname=/etc/* or context_data.process_name=sh")?;
        let (field, not) = field.strip_suffix('!').map_or((field, false), |field| (field, true));
        if field.is_empty() || field.split('.').any(str::is_empty) {
            return Err("the field before = has no name".into());
        }
        Ok(Filter { path: field.split('.').map(String::from).collect(), pattern: pattern.into(), not })
    }

    /// Whether a message, as JSON, has such a value. One without the field has none.
    fn holds(&self, message: &Value) -> bool {
        let value = self.path.iter().try_fold(message, |value, name| value.get(name));
        value.is_some_and(|value| has(value, &self.pattern)) != self.not
    }
}

/// Whether a value, or one of a list, matches.
fn has(value: &Value, pattern: &str) -> bool {
    match value {
        Value::String(text) => matches(pattern, text),
        Value::Array(all) => all.iter().any(|value| has(value, pattern)),
        Value::Object(_) | Value::Null => false,
        other => matches(pattern, &other.to_string()),
    }
}

/// Whether a message, as JSON, passes all filters.
pub fn passes(message: &Value, filters: &[Filter]) -> bool {
    filters.iter().all(|filter| filter.holds(message))
}

/// Fails when a filter is about a field that no message of these types has: it would let nothing pass, or everything.
pub fn check(filters: &[Filter], messages: &[MessageType]) -> Result<(), String> {
    for filter in filters {
        let path = || filter.path.iter().map(String::as_str);
        let has = |kind: &MessageType| {
            packet::descriptor(*kind).is_some_and(|message| json::has_field(&message, path()))
        };
        if !messages.iter().any(has) {
            return Err(format!("no point that is watched has a field {:?}", filter.path.join(".")));
        }
    }
    Ok(())
}

/// Whether a text matches a pattern in which `*` stands for any text.
pub fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text) in
            [("a", "a"), ("/etc/*", "/etc/passwd"), ("*", ""), ("a*b*c", "axxbxxc"), ("*sh", "bash")]
        {
            assert!(matches(pattern, text), "{pattern}");
        }
        for (pattern, text) in [("/etc/*", "/etc"), ("a", "ab"), ("a*a", "a"), ("a*b*c", "axxc")] {
            assert!(!matches(pattern, text), "{pattern}");
        }
    }

    #[test]
    fn fields_are_compared() {
        let open = serde_json::json!({
            "context_data": { "process_name": "nginx" }, "pathname": "/etc/shadow", "flags": 2, "mode": 0,
        });
        let parse = |all: &[&str]| all.iter().map(|text| Filter::parse(text).unwrap()).collect::<Vec<_>>();
        let passes = |all: &[&str], message: &Value| super::passes(message, &parse(all));
        assert!(passes(&["pathname=/etc/*", "context_data.process_name=nginx", "flags=2", "mode=0"], &open));
        assert!(passes(&["pathname!=/tmp/*", "nosuch!=x"], &open) && passes(&[], &open));
        assert!(!passes(&["pathname=/tmp/*"], &open) && !passes(&["nosuch=*"], &open));
        assert!(passes(&["argv=-c"], &serde_json::json!({ "argv": ["sh", "-c"] })));
        for bad in ["", "pathname", "=x", "a..b=c"] {
            assert!(Filter::parse(bad).is_err(), "{bad}");
        }
        let kinds = [MessageType::MESSAGE_SYSCALL_CONNECT, MessageType::MESSAGE_SYSCALL_SETID];
        let check = |all: &[&str]| super::check(&parse(all), &kinds);
        assert_eq!(
            check(&["address=*", "id=0", "context_data.credentials.real_uid=0", "exit.result=0"]),
            Ok(())
        );
        for bad in ["addres=x", "pathname!=x", "exit=0", "context_data.pid=1"] {
            assert!(check(&["id=0", bad]).unwrap_err().contains("has a field"), "{bad}");
        }
    }
}
