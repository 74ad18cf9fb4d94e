//! The messages between the kernel inside and a container's gofer about Unix sockets of the host.

/// Longest path in a request.
pub const MAX_PATH: usize = 4096;
/// Longest request in bytes.
pub const MAX_CONNECT: usize = 8 + MAX_PATH;
/// Bytes of a reply.
pub const CONNECTED: usize = 12;

/// To connect to a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connect<'a> {
    /// Number of the container's tree.
    pub tree: u32,
    /// SOCK_STREAM, SOCK_SEQPACKET or SOCK_DGRAM.
    pub kind: i32,
    /// Names below the tree's root with `/` between them, none of them empty, `.` or `..`.
    pub path: &'a [u8],
}

impl<'a> Connect<'a> {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        [&self.tree.to_le_bytes()[..], &self.kind.to_le_bytes(), self.path].concat()
    }

    /// From bytes; nothing for what is no request.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (tree, rest) = bytes.split_first_chunk()?;
        let (kind, path) = rest.split_first_chunk()?;
        let (tree, kind) = (u32::from_le_bytes(*tree), i32::from_le_bytes(*kind));
        let named = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && !name.contains(&0);
        let good = matches!(kind, libc::SOCK_STREAM | libc::SOCK_SEQPACKET | libc::SOCK_DGRAM)
            && path.len() <= MAX_PATH
            && path.split(|c| *c == b'/').all(named);
        good.then_some(Connect { tree, kind, path })
    }
}

/// What came of it; a descriptor comes with success.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Connected {
    /// Error number, or 0.
    pub errno: i32,
    /// User and group ID of the other side.
    pub owner: (u32, u32),
}

impl Connected {
    /// As bytes.
    pub fn encode(&self) -> [u8; CONNECTED] {
        let mut bytes = [0; CONNECTED];
        bytes[..4].copy_from_slice(&self.errno.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.owner.0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.owner.1.to_le_bytes());
        bytes
    }

    /// From bytes; nothing for what is no reply.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; CONNECTED] = bytes.try_into().ok()?;
        let word = |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
        Some(Connected { errno: word(0)? as i32, owner: (word(4)?, word(8)?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_one_form() {
        let good = Connect { tree: 3, kind: libc::SOCK_STREAM, path: b"a/b c/.x" };
        assert_eq!(Connect::decode(&good.encode()), Some(good));
        for path in [&b""[..], b"/a", b"a/", b"a//b", b"a/../b", b".", b"a\0b"] {
            assert_eq!(Connect::decode(&Connect { path, ..good }.encode()), None, "{path:?}");
        }
        assert_eq!(Connect::decode(&Connect { kind: libc::SOCK_RAW, ..good }.encode()), None);
        assert_eq!(Connect::decode(&Connect { path: &[b'a'; MAX_PATH + 1], ..good }.encode()), None);
        assert_eq!(Connect::decode(b"short"), None);
        let reply = Connected { errno: 111, owner: (7, u32::MAX) };
        assert_eq!(Connected::decode(&reply.encode()), Some(reply));
        assert_eq!(Connected::decode(&[0; 13]), None);
    }
}
