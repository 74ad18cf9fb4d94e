//! Packets: a header of eight bytes, then a message. The handshake has no header.

use crate::VERSION;
use crate::messages::common::{Handshake, MessageType};
use crate::messages::{container, sentry, syscall};
use protobuf::{Enum, Message, MessageDyn};
use std::fmt::Write as _;

/// Bytes of the header that this version writes. A reader skips as many as the header itself says.
pub const HEADER: usize = 8;

/// Longest packet that is sent. A command line with its environment takes 2 MiB at most.
pub const MAX_PACKET: usize = 4 << 20;

/// Appends a packet without its count of dropped points, see [`set_dropped`].
pub fn append(out: &mut Vec<u8>, kind: MessageType, message: &dyn MessageDyn) {
    out.extend_from_slice(&(HEADER as u16).to_le_bytes());
    out.extend_from_slice(&(kind.value() as u16).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    // Writing to a vector does not fail.
    let _ = message.write_to_vec_dyn(out);
}

/// Sets how many points were dropped so far in the header of a packet.
pub fn set_dropped(packet: &mut [u8], dropped: u32) {
    if let Some(field) = packet.get_mut(4..HEADER) {
        field.copy_from_slice(&dropped.to_le_bytes());
    }
}

/// Our half of the handshake.
pub fn handshake() -> Vec<u8> {
    let mut hello = Handshake::new();
    hello.version = VERSION;
    hello.write_to_bytes().unwrap_or_default()
}

/// Checks the consumer's half of the handshake.
pub fn check_handshake(packet: &[u8]) -> Result<(), String> {
    let theirs = Handshake::parse_from_bytes(packet)
        .map_err(|error| format!("the consumer's handshake is no handshake ({error})"))?;
    match theirs.version {
        0 => Err("the consumer's handshake has no version".into()),
        version if version < VERSION => {
            Err(format!("the consumer speaks version {version}; at least {VERSION} is needed"))
        }
        _ => Ok(()),
    }
}

/// A packet taken apart.
#[derive(Debug)]
pub struct Packet {
    /// The header's message type.
    pub kind: MessageType,
    /// Points dropped so far.
    pub dropped: u32,
    /// The message.
    pub message: Box<dyn MessageDyn>,
}

/// Reads a packet. An error for one that is cut short, of an unknown type, or with another message inside.
pub fn parse(packet: &[u8]) -> Result<Packet, String> {
    let header = packet.get(..HEADER).ok_or("a packet without a header")?;
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let dropped = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    let size = usize::from(half(0));
    let body = packet.get(size..).filter(|_| size >= HEADER).ok_or("a header longer than its packet")?;
    let number = i32::from(half(2));
    let kind = MessageType::from_i32(number).ok_or_else(|| format!("message type {number} is unknown"))?;
    let message = read(kind, body)
        .ok_or_else(|| format!("message type {number} has no message"))?
        .map_err(|error| format!("a message of type {number} cannot be read: {error}"))?;
    Ok(Packet { kind, dropped, message })
}

/// The message of a type.
fn read(kind: MessageType, body: &[u8]) -> Option<protobuf::Result<Box<dyn MessageDyn>>> {
    fn of<M: protobuf::MessageFull>(body: &[u8]) -> protobuf::Result<Box<dyn MessageDyn>> {
        M::parse_from_bytes(body).map(|message| Box::new(message) as Box<dyn MessageDyn>)
    }
    use MessageType as T;
    Some(match kind {
        T::MESSAGE_UNKNOWN => return None,
        T::MESSAGE_CONTAINER_START => of::<container::Start>(body),
        T::MESSAGE_SENTRY_CLONE => of::<sentry::CloneInfo>(body),
        T::MESSAGE_SENTRY_EXEC => of::<sentry::ExecveInfo>(body),
        T::MESSAGE_SENTRY_EXIT_NOTIFY_PARENT => of::<sentry::ExitNotifyParentInfo>(body),
        T::MESSAGE_SENTRY_TASK_EXIT => of::<sentry::TaskExit>(body),
        T::MESSAGE_SENTRY_MMAP => of::<sentry::MmapInfo>(body),
        T::MESSAGE_SYSCALL_RAW => of::<syscall::Syscall>(body),
        T::MESSAGE_SYSCALL_OPEN => of::<syscall::Open>(body),
        T::MESSAGE_SYSCALL_CLOSE => of::<syscall::Close>(body),
        T::MESSAGE_SYSCALL_READ => of::<syscall::Read>(body),
        T::MESSAGE_SYSCALL_WRITE => of::<syscall::Write>(body),
        T::MESSAGE_SYSCALL_CONNECT => of::<syscall::Connect>(body),
        T::MESSAGE_SYSCALL_EXECVE => of::<syscall::Execve>(body),
        T::MESSAGE_SYSCALL_SOCKET => of::<syscall::Socket>(body),
        T::MESSAGE_SYSCALL_CHDIR => of::<syscall::Chdir>(body),
        T::MESSAGE_SYSCALL_SETID => of::<syscall::Setid>(body),
        T::MESSAGE_SYSCALL_SETRESID => of::<syscall::Setresid>(body),
        T::MESSAGE_SYSCALL_PRLIMIT64 => of::<syscall::Prlimit>(body),
        T::MESSAGE_SYSCALL_PIPE => of::<syscall::Pipe>(body),
        T::MESSAGE_SYSCALL_FCNTL => of::<syscall::Fcntl>(body),
        T::MESSAGE_SYSCALL_DUP => of::<syscall::Dup>(body),
        T::MESSAGE_SYSCALL_SIGNALFD => of::<syscall::Signalfd>(body),
        T::MESSAGE_SYSCALL_CHROOT => of::<syscall::Chroot>(body),
        T::MESSAGE_SYSCALL_EVENTFD => of::<syscall::Eventfd>(body),
        T::MESSAGE_SYSCALL_CLONE => of::<syscall::Clone>(body),
        T::MESSAGE_SYSCALL_BIND => of::<syscall::Bind>(body),
        T::MESSAGE_SYSCALL_ACCEPT => of::<syscall::Accept>(body),
        T::MESSAGE_SYSCALL_TIMERFD_CREATE => of::<syscall::TimerfdCreate>(body),
        T::MESSAGE_SYSCALL_TIMERFD_SETTIME => of::<syscall::TimerfdSetTime>(body),
        T::MESSAGE_SYSCALL_TIMERFD_GETTIME => of::<syscall::TimerfdGetTime>(body),
        T::MESSAGE_SYSCALL_FORK => of::<syscall::Fork>(body),
        T::MESSAGE_SYSCALL_INOTIFY_INIT => of::<syscall::InotifyInit>(body),
        T::MESSAGE_SYSCALL_INOTIFY_ADD_WATCH => of::<syscall::InotifyAddWatch>(body),
        T::MESSAGE_SYSCALL_INOTIFY_RM_WATCH => of::<syscall::InotifyRmWatch>(body),
        T::MESSAGE_SYSCALL_SOCKETPAIR => of::<syscall::SocketPair>(body),
        T::MESSAGE_SYSCALL_MMAP => of::<syscall::Mmap>(body),
        T::MESSAGE_SYSCALL_LISTEN => of::<syscall::Listen>(body),
        T::MESSAGE_SYSCALL_PTRACE => of::<syscall::Ptrace>(body),
    })
}

/// A message as JSON, in the standard mapping of protocol buffers: 64-bit numbers are strings, bytes are base64, fields
/// at their default are left out. All control characters are escaped, also those that JSON leaves alone: text is the
/// guest's, and a terminal may show it.
pub fn to_json(message: &dyn MessageDyn) -> Result<String, String> {
    let options = protobuf_json_mapping::PrintOptions { proto_field_name: true, ..Default::default() };
    let json = protobuf_json_mapping::print_to_string_with_options(message, &options)
        .map_err(|error| error.to_string())?;
    if !json.contains(char::is_control) {
        return Ok(json);
    }
    // They can only be within strings.
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match c.is_control() {
            true => write!(out, "\\u{:04x}", u32::from(c)).map_err(|error| error.to_string())?,
            false => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_comes_back() {
        let mut open = syscall::Open::new();
        open.sysno = 257;
        open.pathname = "/etc/passwd".into();
        open.fd = -100;
        let mut packet = Vec::new();
        append(&mut packet, MessageType::MESSAGE_SYSCALL_OPEN, &open);
        set_dropped(&mut packet, 7);
        assert_eq!(packet[..8], [8, 0, 7, 0, 7, 0, 0, 0]);
        let parsed = parse(&packet).unwrap();
        assert_eq!((parsed.kind, parsed.dropped), (MessageType::MESSAGE_SYSCALL_OPEN, 7));
        let json = to_json(&*parsed.message).unwrap();
        assert_eq!(json, r#"{"sysno": "257", "fd": "-100", "pathname": "/etc/passwd"}"#);
        // U+009B is the beginning of a sequence that steers a terminal.
        open.pathname = "a\u{9b}2J\x1b\x7f\n\u{e4}".into();
        let json = to_json(&open).unwrap();
        assert!(!json.contains(char::is_control), "{json:?}");
        let back: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(back["pathname"], open.pathname);
    }

    #[test]
    fn a_longer_header_is_skipped() {
        let mut packet = vec![10, 0, 29, 0, 0, 0, 0, 0, 9, 9];
        packet.extend_from_slice(&[0x18, 57]);
        assert_eq!(to_json(&*parse(&packet).unwrap().message).unwrap(), r#"{"sysno": "57"}"#);
    }

    #[test]
    fn garbage_is_refused() {
        for bad in [&[][..], &[8, 0, 7], &[4, 0, 7, 0, 0, 0, 0, 0], &[9, 0, 7, 0, 0, 0, 0, 0]] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        assert!(parse(&[8, 0, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(parse(&[8, 0, 99, 0, 0, 0, 0, 0]).is_err());
        assert!(parse(&[8, 0, 7, 0, 0, 0, 0, 0, 0xff]).is_err());
    }

    #[test]
    fn versions_are_checked() {
        assert!(check_handshake(&handshake()).is_ok());
        assert!(check_handshake(&[8, 2]).is_ok());
        assert!(check_handshake(&[]).unwrap_err().contains("no version"));
        assert!(check_handshake(&[0xff]).unwrap_err().contains("no handshake"));
    }
}
