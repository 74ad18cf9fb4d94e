//! Which messages a watcher wants to see: by the values of their fields.

use serde_json::Value;
use trace_wire::packet;

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

/// Whether a packet passes all filters. Garbage passes where there is none.
pub fn passes(packet: &[u8], filters: &[Filter]) -> bool {
    if filters.is_empty() {
        return true;
    }
    let told = packet::parse(packet).and_then(|parsed| packet::to_json(&*parsed.message));
    let message = told.ok().and_then(|json| serde_json::from_str::<Value>(&json).ok());
    message.is_some_and(|message| filters.iter().all(|filter| filter.holds(&message)))
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
    use trace_wire::MessageType;
    use trace_wire::messages::common::ContextData;
    use trace_wire::messages::syscall::{Execve, Open};

    fn packet(kind: MessageType, message: &impl trace_wire::Message) -> Vec<u8> {
        let mut bytes = Vec::new();
        packet::append(&mut bytes, kind, message);
        bytes
    }

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
        let mut open = Open::new();
        let mut context = ContextData::new();
        context.process_name = "nginx".into();
        open.context_data = Some(context).into();
        (open.pathname, open.flags) = ("/etc/shadow".into(), 2);
        let open = packet(MessageType::MESSAGE_SYSCALL_OPEN, &open);
        let passes = |all: &[&str], packet: &[u8]| {
            let filters: Vec<_> = all.iter().map(|text| Filter::parse(text).unwrap()).collect();
            super::passes(packet, &filters)
        };
        assert!(passes(&["pathname=/etc/*", "context_data.process_name=nginx", "flags=2"], &open));
        assert!(passes(&["pathname!=/tmp/*", "nosuch!=x"], &open) && passes(&[], b"garbage"));
        assert!(!passes(&["pathname=/tmp/*"], &open) && !passes(&["nosuch=*"], &open));
        assert!(!passes(&["pathname=*"], b"garbage"));
        let mut exec = Execve::new();
        exec.argv = vec!["sh".into(), "-c".into()];
        assert!(passes(&["argv=-c"], &packet(MessageType::MESSAGE_SYSCALL_EXECVE, &exec)));
        for bad in ["", "pathname", "=x", "a..b=c"] {
            assert!(Filter::parse(bad).is_err(), "{bad}");
        }
    }
}
