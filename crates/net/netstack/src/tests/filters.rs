//! Packet filters see what passes, and may drop and change it.

use super::hosts::{T0, exchange, host};
use crate::datagram::Protocol;
use crate::hooks::{Hooked, Hooks, Point, Verdict};
use crate::notify::Silent;
use abi::Errno;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;

/// Notes points, drops at one, and sends what goes to 10.0.0.9 to 127.0.0.1.
#[derive(Default)]
struct Filter {
    seen: Mutex<Vec<Point>>,
    drop_at: Mutex<Option<Point>>,
}

impl Hooks for Filter {
    fn look(&self, packet: &mut Hooked<'_>) -> Verdict {
        self.seen.lock().push(packet.point);
        packet.headers.changed = true;
        let bytes = packet.packet.bytes_mut();
        if packet.point == Point::Output && bytes[16..20] == [10, 0, 0, 9] {
            bytes[16..20].copy_from_slice(&[127, 0, 0, 1]);
            bytes[10..12].fill(0);
            let sum = crate::checksum::Sum::new().with(&bytes[..20]).finish();
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            let udp = &mut bytes[26..28];
            udp.fill(0);
        }
        if *self.drop_at.lock() == Some(packet.point) { Verdict::Drop } else { Verdict::Accept }
    }
}

/// Writes the source 10.0.0.77 into what comes in, and leaves the header's checksum.
struct Rewrite;

impl Hooks for Rewrite {
    fn look(&self, packet: &mut Hooked<'_>) -> Verdict {
        if packet.point == Point::Input {
            packet.headers.changed = true;
            let bytes = packet.packet.bytes_mut();
            bytes[12..16].copy_from_slice(&[10, 0, 0, 77]);
            // The sum of the pseudo header changes; none is needed.
            bytes[26..28].fill(0);
        }
        Verdict::Accept
    }
}

#[test]
fn what_a_filter_writes_at_input_is_what_sockets_see() {
    let (a, b) = (host(1), host(2));
    b.stack.set_hooks(Some(Arc::new(Rewrite)));
    let server = b.stack.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
    server.bind(addr("0.0.0.0:53"), true).unwrap();
    let client = a.stack.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
    client.bind(addr("0.0.0.0:1000"), true).unwrap();
    client.send(T0, b"hello", Some(addr("10.0.0.2:53")), &Default::default()).unwrap();
    exchange(T0, &a, &b);
    let received = server.receive(&mut [0; 100], false).unwrap();
    assert_eq!((received.copied, received.datagram.from), (5, addr("10.0.0.77:1000")));
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn filters_see_all_points() {
    let (a, b) = (host(1), host(2));
    let (filter, far) = (Arc::new(Filter::default()), Arc::new(Filter::default()));
    a.stack.set_hooks(Some(filter.clone()));
    b.stack.set_hooks(Some(far.clone()));
    let server = b.stack.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
    server.bind(addr("0.0.0.0:53"), true).unwrap();
    let client = a.stack.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
    let mut out = [0; 9000];
    let send = |len: usize, to: &str| client.send(T0, &vec![1; len], Some(addr(to)), &Default::default());
    send(5000, "10.0.0.2:53").unwrap();
    exchange(T0, &a, &b);
    assert_eq!(server.receive(&mut out, false).unwrap().copied, 5000);
    assert_eq!(*filter.seen.lock(), [Point::Output, Point::PostRouting]);
    // Fragments are put together first.
    assert_eq!(*far.seen.lock(), [Point::PreRouting, Point::Input]);
    for (point, host) in [(Point::PreRouting, &far), (Point::Input, &far)] {
        *host.drop_at.lock() = Some(point);
        send(10, "10.0.0.2:53").unwrap();
        exchange(T0, &a, &b);
        assert_eq!(server.receive(&mut out, false).err(), Some(Errno::EAGAIN), "{point:?}");
    }
    *filter.drop_at.lock() = Some(Point::Output);
    assert_eq!(send(10, "10.0.0.2:53"), Err(Errno::EPERM));
    *filter.drop_at.lock() = None;
    let local = a.stack.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
    local.bind(addr("127.0.0.1:53"), true).unwrap();
    send(10, "10.0.0.9:53").unwrap();
    assert_eq!(local.receive(&mut out, false).unwrap().copied, 10, "a changed destination");
    a.stack.set_hooks(None);
    assert!(!a.stack.taps.watchers.any());
}
