//! The ring without a kernel.

use crate::ring::{Log, SIZE};

#[test]
fn lines_are_read_once_and_in_pieces() {
    let log = Log::new(ktime::Clock::default());
    log.print(6, "one");
    log.add(12, b"two\n");
    let all = String::from_utf8(log.last(1000, false)).unwrap();
    assert!(all.starts_with("<6>[    0.") && all.ends_with("] two\n") && all.lines().count() == 2);
    assert_eq!(log.unread(), all.len());
    let mut read = Vec::new();
    while log.unread() > 0 {
        read.extend(log.read(7));
    }
    assert_eq!(read, all.as_bytes());
    assert!(log.read(100).is_empty());
    assert_eq!(log.last(all.len() / 2 + 1, false).len(), all.len() - all.find("\n").unwrap() - 1);
}

#[test]
fn old_records_make_room() {
    let log = Log::new(ktime::Clock::default());
    for n in 0..5000 {
        log.print(6, &format!("message number {n} of many"));
    }
    let (first, _, end) = log.marks();
    assert_eq!(end, 5000);
    assert!(first > 0 && log.record(first - 1).is_err() && log.record(first).unwrap().is_some());
    assert!(log.last(10 * SIZE, true).len() <= SIZE * 2);
    assert!(log.last(10 * SIZE, false).is_empty());
}
