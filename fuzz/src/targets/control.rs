//! A client on the control socket that says anything, and a sentry that does.
//!
//! Each line of an input is a message. `+` at its beginning makes the rest of it the contents of a descriptor that goes
//! along with the next message.

use super::outcome;

pub(super) const WORDS: &[&str] = &[
    "\n",
    "\n+",
    "\"Start\"",
    "\"Listen\"",
    "\"Container\"",
    "\"Network\"",
    "\"Processes\"",
    "{\"Exec\":{\"terminal\":null}}",
    "{\"Signal\":{\"signo\":9,\"to\":\"All\"}}",
    "{\"Descriptors\":{\"last\":true}}",
    "{\"Freeze\":{\"on\":true}}",
    "{\"Resize\":{\"size\":{\"rows\":1,\"cols\":65535}}}",
    "{\"LimitTasks\":{\"limit\":4294967295}}",
    "{\"Log\":",
    "null",
    "\"args\":[\"x\"]",
    "{\"links\":[],\"routes\":[]}",
    "\"Init\"",
    "{\"Process\":-1}",
    "{\"Exited\":{\"status\":139}}",
    "{\"Refused\":\"",
    "{\"Failed\":{\"kind\":\"not_found\",\"message\":\"\"}}",
];

pub(super) fn run(input: &[u8]) -> u64 {
    let mut messages = Vec::new();
    let mut files = Vec::new();
    for line in input.split(|byte| *byte == b'\n') {
        match line.strip_prefix(b"+") {
            Some(contents) => files.push(contents),
            None => messages.push((line, std::mem::take(&mut files))),
        }
    }
    outcome((sandbox::fuzz::requests(&messages), sandbox::fuzz::answers(&messages)))
}
