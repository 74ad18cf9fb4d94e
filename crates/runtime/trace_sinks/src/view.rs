//! Packets as a session's consumers outside see them: with the name of the point, and the fields that were asked for.

use serde_json::Value;
use std::collections::HashMap;
use trace_wire::MessageType;
use trace_wire::json::{self, Asked};
use trace_wire::packet;
use trace_wire::points::{ContextFields, OptionalFields, Points};
use trace_wire::session::Request;

/// The points that there are, and what a session asks for at them.
pub struct View {
    points: Points,
    asked: HashMap<u32, Asked>,
}

/// What a packet says.
pub struct Told {
    /// The type of its message.
    pub kind: MessageType,
    /// The name of its point; of garbage there is none.
    pub point: Option<String>,
    /// Points that were dropped so far.
    pub dropped: u32,
    /// The message, as JSON.
    pub message: String,
}

impl View {
    /// For a session with these requests.
    pub fn new(points: Points, requests: &[Request]) -> View {
        let mut asked: HashMap<u32, Asked> = HashMap::new();
        for request in requests {
            let of = asked.entry(request.point).or_default();
            of.optional |= OptionalFields::from_bits_truncate(request.optional);
            of.context |= ContextFields::from_bits_truncate(request.context);
        }
        View { points, asked }
    }

    /// Reads a packet, which may be garbage.
    pub fn read(&self, packet: &[u8]) -> Result<Told, String> {
        let parsed = packet::parse(packet)?;
        let point = self.points.of(parsed.kind, &*parsed.message);
        let asked = point.and_then(|point| self.asked.get(&point.point.index()).copied()).unwrap_or_default();
        let message = json::to_json(&*parsed.message, &asked);
        let point = point.map(|point| point.name.clone());
        Ok(Told { kind: parsed.kind, point, dropped: parsed.dropped, message })
    }
}

impl Told {
    /// The message's fields.
    pub fn fields(&self) -> Value {
        serde_json::from_str(&self.message).unwrap_or_default()
    }

    /// A line of JSON: the type, the point, how many points were dropped so far, and the message.
    pub fn line(&self) -> String {
        let Told { kind, point, dropped, message } = self;
        let point = point.as_ref().map(|name| format!("\"point\": \"{name}\", ")).unwrap_or_default();
        format!("{{\"type\": \"{kind:?}\", {point}\"dropped\": {dropped}, \"message\": {message}}}\n")
    }
}

/// A view for tests: of close(2), open(2) and setuid(2) among calls, and of all their fields.
#[cfg(test)]
pub(crate) fn testing() -> View {
    use trace_wire::points::Call;
    let call = |nr, name, message| Call { nr, name, schema: Some((message, OptionalFields::FD_PATH)) };
    let calls = [
        call(3, "close", MessageType::MESSAGE_SYSCALL_CLOSE),
        call(2, "open", MessageType::MESSAGE_SYSCALL_OPEN),
        call(105, "setuid", MessageType::MESSAGE_SYSCALL_SETID),
    ];
    let points = Points::new(calls.into_iter());
    let all: Vec<Request> = points
        .iter()
        .map(|point| Request { point: point.point.index(), optional: u32::MAX, context: 0 })
        .collect();
    View::new(points, &all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace_wire::messages::syscall::{Close, Exit, Setid};

    #[test]
    fn entry_and_return_have_names() {
        let mut message = Setid::new();
        message.sysno = 105;
        let line = |message: &Setid| {
            let mut packet = Vec::new();
            packet::append(&mut packet, MessageType::MESSAGE_SYSCALL_SETID, message);
            testing().read(&packet).unwrap().line()
        };
        let start = "{\"type\": \"MESSAGE_SYSCALL_SETID\", \"point\": \"syscall/setuid/";
        let enter =
            format!("{start}enter\", \"dropped\": 0, \"message\": {{\"sysno\": \"105\", \"id\": 0}}}}\n");
        assert_eq!(line(&message), enter);
        message.exit = Some(Exit::new()).into();
        let exit = line(&message);
        assert!(exit.starts_with(&format!("{start}exit\"")), "{exit}");
        assert!(exit.contains(r#""exit": {"result": "0", "errorno": "0"}"#), "{exit}");
        // A number of no call.
        let mut close = Close::new();
        close.sysno = 511;
        let mut packet = Vec::new();
        packet::append(&mut packet, MessageType::MESSAGE_SYSCALL_CLOSE, &close);
        assert_eq!(testing().read(&packet).unwrap().point, None);
        assert!(testing().read(b"garbage").is_err());
    }
}
