//! Compressed pages of images: head, index and frames.
//!
//! The first byte says what the rest is: 0 the whole file, 1 an index, which gets a sound head, else a frame, which gets a sound
//! entry, because no mutation would find their checksums.

use super::{Bytes, kind, outcome};
use image::PAGE;
use image::packed::{Entry, HEAD, Layout, pack, unpack};

pub(super) const WORDS: &[&str] = &["RFPAGES\0"];

/// Frames of a file that are looked at.
const FRAMES: usize = 4;

pub(super) fn run(input: &[u8]) -> u64 {
    let Some((which, rest)) = input.split_first() else { return 0 };
    match which {
        0 => file(rest),
        1 => index(rest),
        _ => frame(rest),
    }
}

fn file(bytes: &[u8]) -> u64 {
    let all = bytes.len() as u64;
    let layout = match Layout::decode(bytes.get(..HEAD).unwrap_or_default(), all) {
        Ok(layout) => layout,
        Err(why) => return outcome((0, kind(&why))),
    };
    // What is allocated for it is no longer than the file.
    assert!(layout.index_len() <= bytes.len());
    let index = bytes.get(HEAD..).and_then(|rest| rest.get(..layout.index_len())).unwrap_or_default();
    let index = match layout.index(index, all) {
        Ok(index) => index,
        Err(why) => return outcome((1, kind(&why))),
    };
    let read = |(n, entry): (usize, &Entry)| {
        let mut frame = vec![0; layout.place(n as u64).1];
        let packed = &bytes[entry.offset as usize..][..entry.len as usize];
        unpack(entry, packed, &mut frame).map_err(|why| kind(&why))
    };
    let read: Vec<_> = index.iter().enumerate().take(FRAMES).map(read).collect();
    outcome((2, index.len().min(8), read))
}

fn index(bytes: &[u8]) -> u64 {
    let mut bytes = Bytes(bytes);
    let (length, all) = (bytes.long() % (64 << 20) / PAGE * PAGE, bytes.long());
    let layout = Layout::of(length);
    let entry = |_| Entry { offset: bytes.long(), len: bytes.word(), sum: 0 };
    let entries: Vec<Entry> = (0..layout.frames()).map(entry).collect();
    let file = layout.encode(&entries);
    let head = match Layout::decode(&file[..HEAD], all) {
        Ok(head) => head,
        Err(why) => return outcome((3, kind(&why))),
    };
    assert_eq!((head.length, head.frame), (layout.length, layout.frame));
    match head.index(&file[HEAD..], all) {
        Ok(index) => {
            assert_eq!(index, entries);
            for (n, entry) in index.iter().enumerate() {
                assert!(entry.offset.checked_add(entry.len.into()).is_some_and(|end| end <= all));
                assert!(entry.len as usize <= head.place(n as u64).1);
            }
            outcome((4, index.len().min(8)))
        }
        Err(why) => outcome((5, kind(&why))),
    }
}

fn frame(bytes: &[u8]) -> u64 {
    let Some((pages, packed)) = bytes.split_first() else { return 1 };
    let mut frame = vec![0; (1 + usize::from(*pages)) * PAGE as usize];
    let entry = |packed: &[u8]| Entry { offset: 0, len: packed.len() as u32, sum: crc32fast::hash(packed) };
    match unpack(&entry(packed), packed, &mut frame) {
        Ok(()) => {
            let again = pack(&frame);
            let mut back = vec![0; frame.len()];
            assert_eq!(unpack(&entry(&again), &again, &mut back), Ok(()));
            assert!(back == frame);
            outcome((6, again.len().checked_ilog2()))
        }
        Err(why) => outcome((7, kind(&why))),
    }
}
