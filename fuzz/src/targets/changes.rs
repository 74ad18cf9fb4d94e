//! The changes of an overlay, as a sentry tells them to the processes that list, pack or write them.

use super::{kind, outcome};
use overlay_diff::{Reader, Record, Writer};

pub(super) const WORDS: &[&str] =
    &["../", ".wh.", ".wh..wh..opq", "user.a", "security.capability", "\u{1}\u{3}\u{0}"];

pub(super) fn run(input: &[u8]) -> u64 {
    let mut reader = Reader::new(input);
    let mut again = Vec::new();
    let mut counts = [0u8; 8];
    let end = loop {
        match reader.next_record() {
            Ok(record) => {
                let (at, name) = match &record {
                    Record::Node(node) => (0, node.name),
                    Record::Xattr { .. } => (1, &b"x"[..]),
                    Record::Data { .. } => (2, &b"x"[..]),
                    Record::Removed { name } => (3, *name),
                    Record::Up => (4, &b"x"[..]),
                    Record::End => (5, &b"x"[..]),
                    Record::Abort => (6, &b"x"[..]),
                    Record::Omitted { .. } => (7, &b"x"[..]),
                };
                assert!(name != b".." && !name.contains(&b'/') && !name.contains(&0));
                counts[at] = counts[at].saturating_add(1);
                let written = Writer::new(&mut again).write(&record);
                assert!(written.is_ok());
            }
            Err(error) => break error.to_string(),
        }
    };
    assert!(input.starts_with(&again), "there is one form of each record");
    let inside = |path: &[u8]| !path.split(|byte| *byte == b'/').any(|name| name == b"..");
    let listed = writeback::list(input, &mut |_, path| {
        assert!(path.starts_with(b"/") && inside(path));
        Ok(())
    });
    let mut packed = 0u64;
    let left = writeback::pack(input, Count(&mut packed));
    outcome((counts.map(|count| count.min(8)), kind(&end), listed.is_ok(), left.is_ok(), packed / 4096))
}

/// How much was written.
struct Count<'a>(&'a mut u64);

impl std::io::Write for Count<'_> {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        // A file of any size can be all hole.
        *self.0 += buf.len() as u64;
        if *self.0 > 64 << 20 { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(buf.len()) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
