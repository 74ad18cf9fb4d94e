//! Requests and replies.

use crate::address::{FRAME, from_frame, to_frame};
use std::net::SocketAddr;

/// Bytes of a request without data.
const HEADER: usize = 16 + FRAME;
/// Most data in a [`Request::Send`]: no datagram is longer.
pub const MAX_DATA: usize = 65535;
/// Longest request.
pub const MAX_REQUEST: usize = HEADER + MAX_DATA;
/// Bytes of a reply.
pub const REPLY: usize = 12 + FRAME;

/// Address families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// AF_INET.
    V4,
    /// AF_INET6.
    V6,
}

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TCP.
    Stream,
    /// UDP.
    Datagram,
    /// SOCK_DGRAM of ICMP or ICMPv6: echo requests.
    Ping,
}

/// From the kernel inside. Each but [`Close`](Request::Close) is answered, in order. `id` is the sender's number for the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Make a socket; its descriptor comes with the reply.
    Socket {
        /// A number not in use.
        id: u64,
        /// Its family.
        domain: Domain,
        /// Its type.
        kind: Kind,
    },
    /// bind(2).
    Bind {
        /// The socket.
        id: u64,
        /// The local address.
        addr: SocketAddr,
    },
    /// connect(2), which does not wait.
    Connect {
        /// The socket.
        id: u64,
        /// The peer.
        addr: SocketAddr,
    },
    /// connect(2) to AF_UNSPEC: no peer any more.
    Disconnect {
        /// The socket.
        id: u64,
    },
    /// listen(2).
    Listen {
        /// The socket.
        id: u64,
        /// How many connections may wait.
        backlog: i32,
    },
    /// sendto(2) with a destination.
    Send {
        /// The socket.
        id: u64,
        /// MSG_* flags.
        flags: u32,
        /// The destination.
        addr: SocketAddr,
        /// The datagram.
        data: &'a [u8],
    },
    /// The socket is gone. Not answered.
    Close {
        /// The socket.
        id: u64,
    },
}

impl<'a> Request<'a> {
    /// As a packet.
    pub fn encode(&self) -> Vec<u8> {
        let none = [0; FRAME];
        let (op, id, a, b, number, frame, data): (u8, u64, u8, u8, u32, [u8; FRAME], &[u8]) = match *self {
            Request::Socket { id, domain, kind } => (1, id, domain as u8, kind as u8, 0, none, &[]),
            Request::Bind { id, addr } => (2, id, 0, 0, 0, to_frame(&addr), &[]),
            Request::Connect { id, addr } => (3, id, 0, 0, 0, to_frame(&addr), &[]),
            Request::Disconnect { id } => (4, id, 0, 0, 0, none, &[]),
            Request::Listen { id, backlog } => (5, id, 0, 0, backlog as u32, none, &[]),
            Request::Send { id, flags, addr, data } => (6, id, 0, 0, flags, to_frame(&addr), data),
            Request::Close { id } => (7, id, 0, 0, 0, none, &[]),
        };
        let mut out = Vec::with_capacity(HEADER + data.len());
        out.extend([op, a, b, 0]);
        out.extend(number.to_le_bytes());
        out.extend(id.to_le_bytes());
        out.extend(frame);
        out.extend(data);
        out
    }

    /// From a packet; `None` unless it is exactly what [`encode`](Self::encode) gives for some request.
    pub fn decode(packet: &'a [u8]) -> Option<Request<'a>> {
        let (header, data) = packet.split_at_checked(HEADER)?;
        let [op, a, b, zero] = *header.first_chunk()?;
        let number = u32::from_le_bytes(header.get(4..8)?.try_into().ok()?);
        let id = u64::from_le_bytes(header.get(8..16)?.try_into().ok()?);
        let frame: &[u8; FRAME] = header.get(16..)?.try_into().ok()?;
        let addr = || from_frame(frame);
        if zero != 0 || data.len() > MAX_DATA {
            return None;
        }
        let request = match op {
            1 => Request::Socket { id, domain: domain(a)?, kind: kind(b)? },
            2 => Request::Bind { id, addr: addr()? },
            3 => Request::Connect { id, addr: addr()? },
            4 => Request::Disconnect { id },
            5 => Request::Listen { id, backlog: number as i32 },
            6 => Request::Send { id, flags: number, addr: addr()?, data },
            7 => Request::Close { id },
            _ => return None,
        };
        // What belongs to no field is zero.
        let used_frame = matches!(op, 2 | 3 | 6);
        let clean = (used_frame || *frame == [0; FRAME])
            && (op == 1 || (a, b) == (0, 0))
            && (matches!(op, 5 | 6) || number == 0)
            && (op == 6 || data.is_empty());
        clean.then_some(request)
    }
}

fn domain(number: u8) -> Option<Domain> {
    [Domain::V4, Domain::V6].into_iter().find(|d| *d as u8 == number)
}

fn kind(number: u8) -> Option<Kind> {
    [Kind::Stream, Kind::Datagram, Kind::Ping].into_iter().find(|k| *k as u8 == number)
}

/// From the network gofer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// What the host's call failed with; 0 if it worked.
    pub errno: i32,
    /// The peer is a name server that the gofer itself stands for. The descriptor that comes along, or came along before,
    /// carries datagrams to it and back, each behind the server's address (see [`address`](crate::address)).
    pub names: bool,
    /// The value of the call.
    pub value: u32,
    /// With `names`, the local address that the socket seems to have.
    pub addr: Option<SocketAddr>,
}

impl Reply {
    /// As a packet.
    pub fn encode(&self) -> [u8; REPLY] {
        let mut out = [0; REPLY];
        out[0..4].copy_from_slice(&self.errno.to_le_bytes());
        out[4] = self.names.into();
        out[8..12].copy_from_slice(&self.value.to_le_bytes());
        if let Some(addr) = &self.addr {
            out[12..].copy_from_slice(&to_frame(addr));
        }
        out
    }

    /// From a packet.
    pub fn decode(packet: &[u8]) -> Option<Reply> {
        let packet: &[u8; REPLY] = packet.try_into().ok()?;
        let errno = i32::from_le_bytes(*packet.first_chunk()?);
        let value = u32::from_le_bytes(packet[8..12].try_into().ok()?);
        let frame: &[u8; FRAME] = packet[12..].try_into().ok()?;
        let addr = if *frame == [0; FRAME] { None } else { Some(from_frame(frame)?) };
        let names = match packet[4..8] {
            [0, 0, 0, 0] => false,
            [1, 0, 0, 0] => true,
            _ => return None,
        };
        (0..4096).contains(&errno).then_some(Reply { errno, names, value, addr })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> [Request<'static>; 7] {
        let addr = "[2001:db8::1]:443".parse().unwrap();
        [
            Request::Socket { id: 1, domain: Domain::V6, kind: Kind::Ping },
            Request::Bind { id: 2, addr },
            Request::Connect { id: u64::MAX, addr: "1.2.3.4:5".parse().unwrap() },
            Request::Disconnect { id: 3 },
            Request::Listen { id: 4, backlog: -1 },
            Request::Send { id: 5, flags: 0x40, addr, data: b"hello" },
            Request::Close { id: 6 },
        ]
    }

    #[test]
    fn messages_round_trip() {
        for request in requests() {
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
        let addr = Some("10.0.0.1:53".parse().unwrap());
        for reply in [Reply::default(), Reply { errno: 111, names: true, value: 7, addr }] {
            assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }
    }

    #[test]
    fn anything_else_is_no_message() {
        for request in requests() {
            let bytes = request.encode();
            assert_eq!(Request::decode(&bytes[..HEADER - 1]), None);
            for at in 0..HEADER {
                let mut changed = bytes.clone();
                changed[at] ^= 0x80;
                // It is another message, or none: never the same.
                assert_ne!(Request::decode(&changed), Some(request));
                if let Some(other) = Request::decode(&changed) {
                    assert_eq!(other.encode(), changed);
                }
            }
        }
        let mut long = requests()[0].encode();
        long.push(0);
        assert_eq!(Request::decode(&long), None);
        assert_eq!(Request::decode(&vec![6; MAX_REQUEST + 1]), None);
        assert_eq!(Reply::decode(&[0; REPLY - 1]), None);
        assert_eq!(Reply::decode(&[0xff; REPLY]), None);
    }
}
