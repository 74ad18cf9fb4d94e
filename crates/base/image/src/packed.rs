//! A file of pages, compressed. Pure: bytes in, bytes out.
//!
//! ```text
//! magic, 8 bytes        "RFPAGES" and a zero byte
//! version, 4            of this format; a newer one is refused
//! frame, 4              bytes of a frame, 1 MiB to 16 MiB, a multiple of the page size; the last one may be shorter
//! length, 8             of the file of pages
//! checksum, 4           CRC-32 of the index
//! checksum, 4           CRC-32 of these 28 bytes
//! index                 for each frame: offset in this file, 8; length there, 4; CRC-32 of what is there, 4
//! frames                in any order
//! ```
//!
//! A frame with length 0 is zeros, one with its own length is stored as it is, and all others are Zstandard frames. Frames do
//! not need each other, so that several threads can work. The file is hostile input like the rest of an image.

use crate::{PAGE, is_zero};
use ruzstd::decoding::FrameDecoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

/// Bytes of a frame that is written.
pub const FRAME: u64 = 1 << 20;
/// Bytes of the head.
pub const HEAD: usize = 32;
/// Bytes of an entry of the index.
pub const ENTRY: usize = 16;
/// The longest file of pages.
const LONGEST: u64 = 1 << 44;
const MAGIC: [u8; 8] = *b"RFPAGES\0";
const VERSION: u32 = 1;

/// Where a frame is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes there.
    pub len: u32,
    /// CRC-32 of them.
    pub sum: u32,
}

/// How a file of pages is cut into frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Length of the file of pages.
    pub length: u64,
    /// Bytes of a frame.
    pub frame: u64,
    /// CRC-32 of the index.
    index_sum: u32,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

impl Layout {
    /// Of a file of pages with this length.
    pub fn of(length: u64) -> Layout {
        Layout { length, frame: FRAME, index_sum: 0 }
    }

    /// How many frames there are.
    pub fn frames(&self) -> u64 {
        self.length.div_ceil(self.frame)
    }

    /// Where a frame begins in the file of pages, and its length there.
    pub fn place(&self, n: u64) -> (u64, usize) {
        let at = n.saturating_mul(self.frame);
        (at, self.length.saturating_sub(at).min(self.frame) as usize)
    }

    /// Bytes of the index.
    pub fn index_len(&self) -> usize {
        self.frames() as usize * ENTRY
    }

    /// Head and index as bytes.
    pub fn encode(&self, index: &[Entry]) -> Vec<u8> {
        let mut entries = Vec::with_capacity(self.index_len());
        for entry in index {
            entries.extend(entry.offset.to_le_bytes());
            entries.extend(entry.len.to_le_bytes());
            entries.extend(entry.sum.to_le_bytes());
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((self.frame as u32).to_le_bytes());
        bytes.extend(self.length.to_le_bytes());
        bytes.extend(crc32fast::hash(&entries).to_le_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes.extend(entries);
        bytes
    }

    /// Reads the head of a file of `file` bytes.
    pub fn decode(head: &[u8], file: u64) -> Result<Layout, String> {
        if head.len() != HEAD || !head.starts_with(&MAGIC) {
            return Err("it is no file of compressed pages".into());
        }
        let version = u32::from_le_bytes(number(head, 8));
        if version > VERSION {
            return Err(format!("it has format {version}, and this ringfence reads formats up to {VERSION}"));
        }
        let sum = crc32fast::hash(head.get(..HEAD - 4).unwrap_or_default());
        let frame = u64::from(u32::from_le_bytes(number(head, 12)));
        let length = u64::from_le_bytes(number(head, 16));
        // Smaller frames would make an index that takes gigabytes of memory, out of a sparse file.
        let sound = (FRAME..=16 * FRAME).contains(&frame) && frame.is_multiple_of(PAGE);
        let sound = sound && length <= LONGEST && length.is_multiple_of(PAGE);
        if sum != u32::from_le_bytes(number(head, HEAD - 4)) || version == 0 || !sound {
            return Err("its head has changed".into());
        }
        let layout = Layout { length, frame, index_sum: u32::from_le_bytes(number(head, 24)) };
        match layout.frames() <= file.saturating_sub(HEAD as u64) / ENTRY as u64 {
            true => Ok(layout),
            false => Err("it ends in its index".into()),
        }
    }

    /// Reads the index of a file of `file` bytes.
    pub fn index(&self, bytes: &[u8], file: u64) -> Result<Vec<Entry>, String> {
        if bytes.len() != self.index_len() || crc32fast::hash(bytes) != self.index_sum {
            return Err("its index has changed".into());
        }
        let entry = |bytes: &[u8]| Entry {
            offset: u64::from_le_bytes(number(bytes, 0)),
            len: u32::from_le_bytes(number(bytes, 8)),
            sum: u32::from_le_bytes(number(bytes, 12)),
        };
        let index: Vec<Entry> = bytes.chunks(ENTRY).map(entry).collect();
        let sound = |(n, entry): (usize, &Entry)| {
            let (_, raw) = self.place(n as u64);
            let inside = entry.offset.checked_add(entry.len.into()).is_some_and(|end| end <= file);
            inside && entry.len as usize <= raw
        };
        if index.iter().enumerate().all(sound) { Ok(index) } else { Err("its index is not sound".into()) }
    }
}

/// A frame as it is written; nothing for zeros.
pub fn pack(frame: &[u8]) -> Vec<u8> {
    if is_zero(frame) {
        return Vec::new();
    }
    let packed = compress_to_vec(frame, CompressionLevel::Fastest);
    if packed.len() < frame.len() { packed } else { frame.to_vec() }
}

/// Puts a frame of an entry where it was; `packed` is what the file has there. `frame` is filled with zeros before.
pub fn unpack(entry: &Entry, packed: &[u8], frame: &mut [u8]) -> Result<(), String> {
    if packed.len() != entry.len as usize || crc32fast::hash(packed) != entry.sum {
        return Err("a frame has changed".into());
    }
    if packed.is_empty() {
        return Ok(());
    }
    if packed.len() == frame.len() {
        frame.copy_from_slice(packed);
        return Ok(());
    }
    match FrameDecoder::new().decode_all(packed, frame) {
        Ok(n) if n == frame.len() => Ok(()),
        Ok(n) => Err(format!("a frame has {n} bytes, and should have {}", frame.len())),
        Err(error) => Err(format!("a frame cannot be decompressed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames: text, zeros, noise, and a short one.
    fn sample() -> (Vec<u8>, Vec<u8>) {
        let frame = FRAME as usize;
        let mut pages: Vec<u8> = b"some text ".iter().copied().cycle().take(frame).collect();
        pages.resize(2 * frame, 0);
        let mut state = 1u64;
        for _ in 0..frame / 8 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            pages.extend((state ^ (state >> 29)).to_le_bytes());
        }
        pages.extend([7; 2 * PAGE as usize]);
        let layout = Layout::of(pages.len() as u64);
        let mut at = (HEAD + layout.index_len()) as u64;
        let (mut index, mut frames) = (Vec::new(), Vec::new());
        for n in 0..layout.frames() {
            let (from, len) = layout.place(n);
            let packed = pack(&pages[from as usize..][..len]);
            index.push(Entry { offset: at, len: packed.len() as u32, sum: crc32fast::hash(&packed) });
            at += packed.len() as u64;
            frames.extend(packed);
        }
        let mut file = layout.encode(&index);
        file.extend(frames);
        (pages, file)
    }

    fn read(file: &[u8]) -> Result<Vec<u8>, String> {
        let all = file.len() as u64;
        let layout = Layout::decode(file.get(..HEAD).ok_or("short")?, all)?;
        let index = layout.index(file.get(HEAD..HEAD + layout.index_len()).ok_or("short")?, all)?;
        let mut pages = Vec::new();
        for (n, entry) in index.iter().enumerate() {
            let mut frame = vec![0; layout.place(n as u64).1];
            unpack(entry, &file[entry.offset as usize..][..entry.len as usize], &mut frame)?;
            pages.extend(frame);
        }
        Ok(pages)
    }

    #[test]
    fn pages_come_back() {
        let (pages, file) = sample();
        assert!(read(&file).unwrap() == pages);
        // Noise is stored as it is, and the rest is small.
        assert!(file.len() < FRAME as usize + 20_000, "{}", file.len());
        assert_eq!(read(&Layout::of(0).encode(&[])), Ok(Vec::new()));
    }

    #[test]
    fn a_changed_bit_is_found() {
        let (_, file) = sample();
        let places = (0..HEAD + 64).chain((0..50).map(|i| file.len() - 1 - i * 999));
        for at in places {
            let mut changed = file.clone();
            changed[at] ^= 1;
            assert!(read(&changed).is_err(), "{at}");
        }
        for short in [0, HEAD - 1, HEAD, HEAD + 8] {
            assert!(read(&file[..short]).is_err());
        }
    }

    #[test]
    fn hostile_frames_are_refused() {
        let entry =
            |packed: &[u8]| Entry { offset: 0, len: packed.len() as u32, sum: crc32fast::hash(packed) };
        let mut frame = vec![0; 2 * PAGE as usize];
        // It would be longer or shorter than its place.
        for len in [1, 3] {
            let packed = pack(&vec![5; len * PAGE as usize]);
            assert!(unpack(&entry(&packed), &packed, &mut frame).is_err());
        }
        for garbage in [&[0u8][..], b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfd\xff\xff\xff\xff\xff\xff\xff\xff"]
        {
            assert!(unpack(&entry(garbage), garbage, &mut frame).is_err());
        }
        let layout = |frame: u64, length: u64| Layout { length, frame, index_sum: 0 };
        let frame = FRAME;
        for wrong in [
            layout(0, PAGE),
            layout(PAGE, PAGE),
            layout(17 * frame, PAGE),
            layout(frame + 1, PAGE),
            layout(frame, 1),
            layout(frame, 1 << 50),
        ] {
            let bytes = Layout { index_sum: 0, ..wrong };
            let mut head = MAGIC.to_vec();
            head.extend(VERSION.to_le_bytes());
            head.extend((bytes.frame as u32).to_le_bytes());
            head.extend(bytes.length.to_le_bytes());
            head.extend([0; 4]);
            head.extend(crc32fast::hash(&head).to_le_bytes());
            assert!(Layout::decode(&head, u64::MAX).is_err());
        }
        let outside = Entry { offset: u64::MAX, len: 1, sum: 0 };
        let bytes = Layout::of(PAGE).encode(&[outside]);
        let layout = Layout::decode(&bytes[..HEAD], 1 << 20).unwrap();
        assert!(layout.index(&bytes[HEAD..], 1 << 20).is_err());
    }
}
