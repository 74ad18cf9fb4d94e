//! What Linux counts a message for against a socket's buffers: its descriptor and the memory block that holds its bytes, not the
//! bytes alone. The figures are Linux's on x86-64, measured by what sockets of the default size keep, so that programs which
//! rely on a buffer's size lose as much here as there. What the messages hold here is counted apart, in [`crate::memory`].

/// The descriptor.
const DESCRIPTOR: usize = 256;
/// What follows the bytes in their block.
const TAIL: usize = 320;
/// Room for the headers of a TCP segment.
const HEADERS: usize = 320;
/// The block of a small packet.
const SMALL_BLOCK: usize = 576;
/// Bytes in a small packet's block, and in the largest block.
const SMALL: usize = 256;
const LARGEST: usize = 16_384 - TAIL;

/// Bytes and headroom in one block.
fn block(bytes: usize) -> usize {
    (bytes.next_multiple_of(64) + TAIL).next_power_of_two().max(512) + DESCRIPTOR
}

/// An IP packet of so many bytes.
pub fn packet(len: usize, v6: bool) -> usize {
    // Room for the link's header.
    let bytes = len + if v6 { 24 } else { 31 };
    match bytes {
        _ if bytes <= SMALL => SMALL_BLOCK + DESCRIPTOR,
        _ if bytes < LARGEST => block(bytes),
        _ => SMALL_BLOCK + DESCRIPTOR + len,
    }
}

/// A message of a local socket; bytes beyond those of the first block are in pages.
fn local(len: usize, first: usize) -> usize {
    let paged = len.saturating_sub(first).next_multiple_of(4096);
    block(len.saturating_sub(paged)) + paged
}

/// A datagram or record of a Unix socket, or a netlink message.
pub fn record(len: usize) -> usize {
    local(len, LARGEST)
}

/// Segments of TCP's send queue: their bytes are in pages.
pub fn segments(count: usize, bytes: usize) -> usize {
    count * (SMALL_BLOCK + DESCRIPTOR) + bytes
}

/// A segment of TCP as Linux provides for it when it grows the send buffer: headers and bytes in one block.
pub fn full_segment(mss: usize) -> usize {
    (mss + HEADERS + TAIL).next_power_of_two() + DESCRIPTOR
}

/// A piece of a Unix stream.
pub fn piece(len: usize) -> usize {
    local(len, 4096 - TAIL)
}

/// The longest piece of a Unix stream.
pub const LONGEST_PIECE: usize = 4096 - TAIL + 32_768;

#[cfg(test)]
mod tests {
    use super::*;

    /// How many messages the default buffer of 212,992 bytes takes on Linux 6.18.
    #[test]
    fn figures_are_those_of_linux() {
        let udp = [(193, 256), (200, 166), (641, 166), (700, 92), (1648, 92), (1700, 48), (3700, 48)];
        let large =
            [(3776, 25), (7800, 25), (9000, 12), (16_064, 12), (17_000, 11), (20_000, 10), (65_507, 3)];
        for (len, count) in udp.into_iter().chain(large) {
            assert_eq!(212_992 / packet(len + 28, false), count, "{len} bytes");
        }
        assert_eq!(212_992 / packet(3700 + 48, true), 48);
        let records =
            [(192, 278), (193, 167), (3776, 49), (16_064, 13), (16_065, 11), (40_000, 6), (65_507, 4)];
        for (len, count) in records {
            assert_eq!(212_992usize.div_ceil(record(len)), count, "{len} bytes");
        }
        // SO_SNDBUF of a TCP connection over loopback and over Ethernet, twice ten segments.
        assert_eq!((20 * full_segment(65_495), 20 * full_segment(1460)), (2_626_560, 87_040));
        assert_eq!(segments(72, 3_923_968), 3_983_872);
        for (len, count) in [(3776, 49), (3777, 44), (6000, 26), (9000, 21), (12_000, 17), (20_000, 11)] {
            assert_eq!(212_992usize.div_ceil(piece(len)), count, "{len} bytes");
        }
    }
}
