//! The messages between the kernel inside and a container's gofer about Unix sockets of the host.

/// Longest path in a request.
pub const MAX_PATH: usize = 4096;
/// Longest request in bytes.
pub const MAX_REQUEST: usize = 12 + MAX_PATH;
/// Bytes of a reply.
pub const REPLY: usize = 12;

/// What is to be done with the name of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// A new socket is connected to the one with the name.
    Connect,
    /// A new socket gets the name, which must not be there.
    Bind,
}

/// To make a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// What is done with it.
    pub act: Act,
    /// Number of the container's tree.
    pub tree: u32,
    /// SOCK_STREAM, SOCK_SEQPACKET or SOCK_DGRAM.
    pub kind: i32,
    /// Names below the tree's root with `/` between them, none of them empty, `.` or `..`.
    pub path: &'a [u8],
}

impl<'a> Request<'a> {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let act = match self.act {
            Act::Connect => 0u32,
            Act::Bind => 1,
        };
        [&act.to_le_bytes()[..], &self.tree.to_le_bytes(), &self.kind.to_le_bytes(), self.path].concat()
    }

    /// From bytes; nothing for what is no request.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (act, rest) = bytes.split_first_chunk()?;
        let act = match u32::from_le_bytes(*act) {
            0 => Act::Connect,
            1 => Act::Bind,
            _ => return None,
        };
        let (tree, rest) = rest.split_first_chunk()?;
        let (kind, path) = rest.split_first_chunk()?;
        let (tree, kind) = (u32::from_le_bytes(*tree), i32::from_le_bytes(*kind));
        let named = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && !name.contains(&0);
        let good = matches!(kind, libc::SOCK_STREAM | libc::SOCK_SEQPACKET | libc::SOCK_DGRAM)
            && path.len() <= MAX_PATH
            && path.split(|c| *c == b'/').all(named);
        good.then_some(Request { act, tree, kind, path })
    }
}

/// What came of it; a descriptor comes with success.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Reply {
    /// Error number, or 0.
    pub errno: i32,
    /// User and group ID of the other side of a connection.
    pub owner: (u32, u32),
}

impl Reply {
    /// As bytes.
    pub fn encode(&self) -> [u8; REPLY] {
        let mut bytes = [0; REPLY];
        bytes[..4].copy_from_slice(&self.errno.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.owner.0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.owner.1.to_le_bytes());
        bytes
    }

    /// From bytes; nothing for what is no reply.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; REPLY] = bytes.try_into().ok()?;
        let word = |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
        Some(Reply { errno: word(0)? as i32, owner: (word(4)?, word(8)?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_one_form() {
        let good = Request { act: Act::Connect, tree: 3, kind: libc::SOCK_STREAM, path: b"a/b c/.x" };
        for act in [Act::Connect, Act::Bind] {
            let good = Request { act, ..good };
            assert_eq!(Request::decode(&good.encode()), Some(good));
        }
        for path in [&b""[..], b"/a", b"a/", b"a//b", b"a/../b", b".", b"a\0b"] {
            assert_eq!(Request::decode(&Request { path, ..good }.encode()), None, "{path:?}");
        }
        assert_eq!(Request::decode(&Request { kind: libc::SOCK_RAW, ..good }.encode()), None);
        assert_eq!(Request::decode(&Request { path: &[b'a'; MAX_PATH + 1], ..good }.encode()), None);
        assert_eq!(Request::decode(b"short"), None);
        let reply = Reply { errno: 111, owner: (7, u32::MAX) };
        assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        assert_eq!(Reply::decode(&[0; 13]), None);
    }
}
