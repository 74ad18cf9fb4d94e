//! Packets: a header of eight bytes, then a message. The handshake has no header.

use crate::VERSION;
use crate::messages::common::{Handshake, MessageType};
use crate::messages::{container, sentry, syscall};
use protobuf::reflect::MessageDescriptor;
use protobuf::{Enum, Message, MessageDyn, MessageFull};

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
    let message = descriptor(kind)
        .ok_or_else(|| format!("message type {number} has no message"))?
        .parse_from_bytes(body)
        .map_err(|error| format!("a message of type {number} cannot be read: {error}"))?;
    Ok(Packet { kind, dropped, message })
}

/// The message of a type.
pub fn descriptor(kind: MessageType) -> Option<MessageDescriptor> {
    use MessageType as T;
    Some(match kind {
        T::MESSAGE_UNKNOWN => return None,
        T::MESSAGE_CONTAINER_START => container::Start::descriptor(),
        T::MESSAGE_SENTRY_CLONE => sentry::CloneInfo::descriptor(),
        T::MESSAGE_SENTRY_EXEC => sentry::ExecveInfo::descriptor(),
        T::MESSAGE_SENTRY_EXIT_NOTIFY_PARENT => sentry::ExitNotifyParentInfo::descriptor(),
        T::MESSAGE_SENTRY_TASK_EXIT => sentry::TaskExit::descriptor(),
        T::MESSAGE_SENTRY_MMAP => sentry::MmapInfo::descriptor(),
        T::MESSAGE_SYSCALL_RAW => syscall::Syscall::descriptor(),
        T::MESSAGE_SYSCALL_OPEN => syscall::Open::descriptor(),
        T::MESSAGE_SYSCALL_CLOSE => syscall::Close::descriptor(),
        T::MESSAGE_SYSCALL_READ => syscall::Read::descriptor(),
        T::MESSAGE_SYSCALL_WRITE => syscall::Write::descriptor(),
        T::MESSAGE_SYSCALL_CONNECT => syscall::Connect::descriptor(),
        T::MESSAGE_SYSCALL_EXECVE => syscall::Execve::descriptor(),
        T::MESSAGE_SYSCALL_SOCKET => syscall::Socket::descriptor(),
        T::MESSAGE_SYSCALL_CHDIR => syscall::Chdir::descriptor(),
        T::MESSAGE_SYSCALL_SETID => syscall::Setid::descriptor(),
        T::MESSAGE_SYSCALL_SETRESID => syscall::Setresid::descriptor(),
        T::MESSAGE_SYSCALL_PRLIMIT64 => syscall::Prlimit::descriptor(),
        T::MESSAGE_SYSCALL_PIPE => syscall::Pipe::descriptor(),
        T::MESSAGE_SYSCALL_FCNTL => syscall::Fcntl::descriptor(),
        T::MESSAGE_SYSCALL_DUP => syscall::Dup::descriptor(),
        T::MESSAGE_SYSCALL_SIGNALFD => syscall::Signalfd::descriptor(),
        T::MESSAGE_SYSCALL_CHROOT => syscall::Chroot::descriptor(),
        T::MESSAGE_SYSCALL_EVENTFD => syscall::Eventfd::descriptor(),
        T::MESSAGE_SYSCALL_CLONE => syscall::Clone::descriptor(),
        T::MESSAGE_SYSCALL_BIND => syscall::Bind::descriptor(),
        T::MESSAGE_SYSCALL_ACCEPT => syscall::Accept::descriptor(),
        T::MESSAGE_SYSCALL_TIMERFD_CREATE => syscall::TimerfdCreate::descriptor(),
        T::MESSAGE_SYSCALL_TIMERFD_SETTIME => syscall::TimerfdSetTime::descriptor(),
        T::MESSAGE_SYSCALL_TIMERFD_GETTIME => syscall::TimerfdGetTime::descriptor(),
        T::MESSAGE_SYSCALL_FORK => syscall::Fork::descriptor(),
        T::MESSAGE_SYSCALL_INOTIFY_INIT => syscall::InotifyInit::descriptor(),
        T::MESSAGE_SYSCALL_INOTIFY_ADD_WATCH => syscall::InotifyAddWatch::descriptor(),
        T::MESSAGE_SYSCALL_INOTIFY_RM_WATCH => syscall::InotifyRmWatch::descriptor(),
        T::MESSAGE_SYSCALL_SOCKETPAIR => syscall::SocketPair::descriptor(),
        T::MESSAGE_SYSCALL_MMAP => syscall::Mmap::descriptor(),
        T::MESSAGE_SYSCALL_LISTEN => syscall::Listen::descriptor(),
        T::MESSAGE_SYSCALL_PTRACE => syscall::Ptrace::descriptor(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{Asked, to_json};

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
        let json = to_json(&*parsed.message, &Asked::default());
        let all = r#"{"sysno": "257", "fd": "-100", "pathname": "/etc/passwd", "flags": 0, "mode": 0}"#;
        assert_eq!(json, all);
    }

    #[test]
    fn a_longer_header_is_skipped() {
        let mut packet = vec![10, 0, 29, 0, 0, 0, 0, 0, 9, 9];
        packet.extend_from_slice(&[0x18, 57]);
        let json = to_json(&*parse(&packet).unwrap().message, &Asked::default());
        assert_eq!(json, r#"{"sysno": "57"}"#);
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
