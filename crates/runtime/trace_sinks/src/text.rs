//! Messages as lines for people.

use crate::view::View;
use serde_json::Value;
use std::fmt::Write;

/// Longest text of one field; more is cut.
const MAX_TEXT: usize = 200;

/// Colours of a terminal.
const DIM: &str = "\x1b[2m";
const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";

/// Fields that a line shows in other places, or not at all.
const HIDDEN: [&str; 7] = ["context_data", "exit", "sysno", "address", "env", "binary_sha256", "binary_sha1"];

/// A packet as a line: time, container, process, what it is, its fields, and how a call has ended. Control characters of the
/// guest's are escaped.
pub fn line(packet: &[u8], view: &View, colours: bool) -> String {
    let paint = |colour: &'static str| if colours { colour } else { "" };
    let told = match view.read(packet) {
        Ok(told) => told,
        Err(error) => return format!("{}{}{}\n", paint(RED), escaped(&error, MAX_TEXT), paint(PLAIN)),
    };
    let message = told.fields();
    let mut out = String::new();
    let context = &message["context_data"];
    let text = |value: &Value, most| escaped(value.as_str().unwrap_or_default(), most);
    let _ = write!(
        out,
        "{}{} {}{} {}[{}] ",
        paint(DIM),
        time(&context["time_ns"]),
        text(&context["container_id"], 12),
        paint(PLAIN),
        quoted(context["process_name"].as_str().unwrap_or_default()),
        context["thread_id"].as_i64().unwrap_or(0),
    );
    let kind = format!("{:?}", told.kind).replace("MESSAGE_", "").replace("SYSCALL_", "").to_lowercase();
    let _ = write!(out, "{}{kind}{}", paint(BOLD), paint(PLAIN));
    for (name, value) in message.as_object().into_iter().flatten() {
        if !HIDDEN.contains(&name.as_str()) && !says_nothing(value) {
            let _ = write!(out, " {name}={}", shown(value));
        }
    }
    for name in ["binary_sha256", "binary_sha1", "address"] {
        if let Some(value) = message.get(name).and_then(Value::as_str).filter(|value| !value.is_empty()) {
            // Digests are compared with those of other programs.
            let _ = write!(out, " {}={}", name.trim_start_matches("binary_"), quoted(value));
        }
    }
    if let Some(exit) = message.get("exit") {
        let number = |name: &str| exit[name].as_str().and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
        match number("errorno") {
            0 => write!(out, " = {}", number("result")),
            errno => write!(out, " {}= error {errno}{}", paint(RED), paint(PLAIN)),
        }
        .unwrap_or_default();
    }
    if told.dropped > 0 {
        let _ = write!(out, " {}({} dropped){}", paint(DIM), told.dropped, paint(PLAIN));
    }
    out.push('\n');
    out
}

/// A text or list that is empty, or a flag that is not set: people look for what there is.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(all) => all.is_empty(),
        other => *other == Value::Bool(false),
    }
}

/// A field: strings without quotes where they need none, lists with spaces.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(all) => format!("[{}]", all.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Value::Object(all) => {
            let fields: Vec<_> = all.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect();
            format!("{{{}}}", fields.join(" "))
        }
        other => other.to_string(),
    }
}

fn quoted(text: &str) -> String {
    let plain = |c: char| !c.is_whitespace() && !"=[]".contains(c) && shows(c);
    match !text.is_empty() && text.chars().all(plain) && text.len() <= MAX_TEXT {
        true => text.into(),
        false => format!("\"{}\"", escaped(text, MAX_TEXT)),
    }
}

/// Text of the guest's that a terminal can show, and that cannot pass for something behind it.
fn escaped(text: &str, most: usize) -> String {
    let cut: String = text.chars().take(most).collect();
    let more = if cut.len() < text.len() { "..." } else { "" };
    let escape = |c: char| if shows(c) { c.to_string() } else { c.escape_default().to_string() };
    cut.chars().map(escape).collect::<String>() + more
}

/// True for a character that stands for itself: not those that steer a terminal, change the direction of text or take no
/// room, and not those that end a quoted text.
fn shows(c: char) -> bool {
    let invisible = matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    !c.is_control() && !invisible && c != '"' && c != '\\'
}

/// The time of day of nanoseconds since 1970, in UTC.
fn time(ns: &Value) -> String {
    let ns: i64 = ns.as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
    let (seconds, rest) = (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000));
    let day = seconds.rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}.{:06}", day / 3600, day / 60 % 60, day % 60, rest / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::testing;
    use trace_wire::messages::common::ContextData;
    use trace_wire::messages::syscall::{Exit, Open};
    use trace_wire::{MessageType, packet};

    #[test]
    fn a_line_tells_it_in_order() {
        let mut open = Open::new();
        let mut context = ContextData::new();
        context.time_ns = 3_723_000_004_000;
        context.process_name = "ev\x1bil".into();
        context.thread_id = 7;
        context.container_id = "box".into();
        open.context_data = Some(context).into();
        open.sysno = 2;
        open.pathname = "/etc/a b".into();
        let mut exit = Exit::new();
        exit.errorno = 13;
        open.exit = Some(exit).into();
        let mut bytes = Vec::new();
        packet::append(&mut bytes, MessageType::MESSAGE_SYSCALL_OPEN, &open);
        let expected = "01:02:03.000004 box \"ev\\u{1b}il\"[7] open fd=0 flags=0 mode=0 pathname=\"/etc/a b\" = error 13\n";
        assert_eq!(line(&bytes, &testing(), false), expected);
        assert!(line(&bytes, &testing(), true).contains("\x1b[31m"));
        assert!(line(b"x", &testing(), false).contains("without a header"));
    }

    #[test]
    fn a_text_cannot_pass_for_fields_or_steer_a_terminal() {
        assert_eq!(quoted("/etc/passwd"), "/etc/passwd");
        assert_eq!(quoted("a\" flags=0 \"b"), r#""a\" flags=0 \"b""#);
        assert_eq!(quoted("flags=0"), r#""flags=0""#);
        assert_eq!(quoted("x[1]"), r#""x[1]""#);
        assert_eq!(quoted("back\\slash"), r#""back\\slash""#);
        assert_eq!(quoted("\u{9b}2J"), r#""\u{9b}2J""#);
        assert_eq!(quoted("exe\u{202e}gpj"), r#""exe\u{202e}gpj""#);
        assert_eq!(quoted("@a = 0"), "\"@a = 0\"");
        assert_eq!(quoted("caf\u{e9}"), "caf\u{e9}");
    }
}
