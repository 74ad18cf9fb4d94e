//! Control messages between the program and the host, as bytes. Pure.

use socket::Ancillary;

/// Bytes of `struct cmsghdr`.
const HEADER: usize = 16;

/// A control buffer with these messages.
pub(crate) fn to_bytes(messages: &[Ancillary]) -> Vec<u8> {
    let mut out = Vec::new();
    for message in messages {
        out.extend(((HEADER + message.data.len()) as u64).to_ne_bytes());
        out.extend(message.level.to_ne_bytes());
        out.extend(message.kind.to_ne_bytes());
        out.extend(&message.data);
        out.resize(out.len().next_multiple_of(8), 0);
    }
    out
}

/// The messages of a control buffer; none beyond one that makes no sense, and no descriptors.
pub(crate) fn from_bytes(bytes: &[u8]) -> Vec<Ancillary> {
    let (mut rest, mut out) = (bytes, Vec::new());
    while let Some((header, _)) = rest.split_first_chunk::<HEADER>() {
        let [l0, l1, l2, l3, l4, l5, l6, l7, a, b, c, d, e, f, g, h] = *header;
        let len = u64::from_ne_bytes([l0, l1, l2, l3, l4, l5, l6, l7]);
        let (level, kind) = (i32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes([e, f, g, h]));
        let Some(data) = usize::try_from(len).ok().and_then(|len| rest.get(HEADER..len)) else { break };
        if (level, kind) != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            out.push(Ancillary { level, kind, data: data.to_vec() });
        }
        rest = rest.get((HEADER + data.len()).next_multiple_of(8)..).unwrap_or_default();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip() {
        let messages = [
            Ancillary { level: 0, kind: 2, data: vec![1, 2, 3, 4, 5] },
            Ancillary { level: 41, kind: 50, data: vec![7; 20] },
        ];
        let bytes = to_bytes(&messages);
        assert_eq!(from_bytes(&bytes), messages);
        assert_eq!(from_bytes(&bytes[..30]), messages[..1]);
        assert!(from_bytes(&[0xff; 40]).is_empty() && from_bytes(&[0; 40]).is_empty());
    }
}
