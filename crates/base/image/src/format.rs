//! The metadata of an image as bytes.
//!
//! ```text
//! magic, 8 bytes        "RFIMAGE" and a zero byte
//! version, 4 bytes      of the format; a newer one is refused
//! checksum, 4 bytes     CRC-32 of these 12 bytes
//! sections              each: name, 16 bytes; length, 8; CRC-32 of name, length and content, 4; 4 of zeros; content
//! ```
//!
//! Numbers are little-endian. The last section is `end`: its content is the number of sections before it, and nothing
//! follows. The content of the others is CBOR, but for `sums`, which is bytes. A reader passes over sections that it does
//! not know. An image is hostile input: every length is compared with what is there before anything is allocated.

use crate::{About, Sums};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt;

/// The newest format that is known, and the one that is written.
pub const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"RFIMAGE\0";
const HEAD: usize = 16;
const NAME: usize = 16;
const SECTION: usize = NAME + 16;
/// So many of the first bytes have what an image says of itself.
pub const FIRST: usize = 64 << 10;
/// Most sections.
const MANY: usize = 1024;
/// How deep values may lie in each other.
const DEEP: usize = 64;
const ABOUT: &str = "about";
const SUMS: &str = "sums";
const END: &str = "end";

/// Why bytes are not an image that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Other bytes.
    NoImage,
    /// Of a newer format.
    Newer(u32),
    /// It ends too soon, or bytes have changed.
    Damaged(&'static str),
    /// There is no such section.
    Missing(String),
    /// A section, by name, does not hold what it should, and why.
    Content(String, String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoImage => write!(f, "this is not the metadata of a checkpoint"),
            Error::Newer(found) => write!(
                f,
                "the image has format {found}, and this ringfence reads formats up to {VERSION}: use a newer ringfence"
            ),
            Error::Damaged(what) => write!(f, "the image is damaged: {what}"),
            Error::Missing(name) => write!(f, "the image has no section {name:?}"),
            Error::Content(name, why) => write!(f, "the section {name:?} of the image cannot be read: {why}"),
        }
    }
}

impl std::error::Error for Error {}

/// Makes metadata.
pub struct Writer {
    bytes: Vec<u8>,
    sections: u64,
}

impl Writer {
    /// The beginning, with what the image says of itself.
    pub fn new(about: &About) -> Result<Writer, Error> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        let mut writer = Writer { bytes, sections: 0 };
        writer.section(ABOUT, about)?;
        Ok(writer)
    }

    /// Adds a section; its name has at most 16 bytes and is given once.
    pub fn section(&mut self, name: &str, content: &impl Serialize) -> Result<(), Error> {
        let mut bytes = Vec::new();
        let failed = |e: ciborium::ser::Error<std::io::Error>| Error::Content(name.into(), e.to_string());
        ciborium::into_writer(content, &mut bytes).map_err(failed)?;
        self.raw(name, &bytes)
    }

    /// Adds the checksums of the file of pages.
    pub fn sums(&mut self, sums: &Sums) -> Result<(), Error> {
        self.raw(SUMS, &sums.to_bytes())
    }

    fn raw(&mut self, name: &str, content: &[u8]) -> Result<(), Error> {
        let mut head = [0; NAME];
        match head.get_mut(..name.len()).filter(|_| !name.is_empty() && !name.contains('\0')) {
            Some(to) => to.copy_from_slice(name.as_bytes()),
            None => return Err(Error::Content(name.into(), "no name for a section".into())),
        }
        let mut sum = crc32fast::Hasher::new();
        let len = (content.len() as u64).to_le_bytes();
        [&head[..], &len, content].iter().for_each(|part| sum.update(part));
        self.bytes.extend(head);
        self.bytes.extend(len);
        self.bytes.extend(sum.finalize().to_le_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend(content);
        self.sections += 1;
        Ok(())
    }

    /// The bytes of the file.
    pub fn finish(mut self) -> Result<Vec<u8>, Error> {
        let count = self.sections.to_le_bytes();
        self.raw(END, &count)?;
        Ok(self.bytes)
    }
}

/// Reads metadata.
#[derive(Debug)]
pub struct Reader<'a> {
    sections: BTreeMap<&'a str, &'a [u8]>,
}

fn take<'a>(rest: &mut &'a [u8], n: usize, what: &'static str) -> Result<&'a [u8], Error> {
    let (part, after) = rest.split_at_checked(n).ok_or(Error::Damaged(what))?;
    *rest = after;
    Ok(part)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

impl<'a> Reader<'a> {
    /// Checks all of it but the contents of the sections.
    pub fn new(bytes: &'a [u8]) -> Result<Reader<'a>, Error> {
        let mut rest = bytes;
        let head =
            take(&mut rest, HEAD, "it ends in its head").map_err(|e| match bytes.starts_with(&MAGIC) {
                true => e,
                false => Error::NoImage,
            })?;
        if !head.starts_with(&MAGIC) {
            return Err(Error::NoImage);
        }
        let version = u32::from_le_bytes(number(head, 8));
        if version > VERSION {
            return Err(Error::Newer(version));
        }
        let sum = u32::from_le_bytes(number(head, 12));
        if version == 0 || crc32fast::hash(head.get(..12).unwrap_or_default()) != sum {
            return Err(Error::Damaged("its head has changed"));
        }
        let mut sections = BTreeMap::new();
        loop {
            let head = take(&mut rest, SECTION, "it ends between sections")?;
            let len = usize::try_from(u64::from_le_bytes(number(head, NAME))).unwrap_or(usize::MAX);
            let content = take(&mut rest, len, "it ends in a section")?;
            let mut sum = crc32fast::Hasher::new();
            sum.update(head.get(..NAME + 8).unwrap_or_default());
            sum.update(content);
            let noted = u32::from_le_bytes(number(head, NAME + 8));
            if sum.finalize() != noted || number(head, NAME + 12) != [0; 4] {
                return Err(Error::Damaged("a section has changed"));
            }
            let name = head.get(..NAME).unwrap_or_default();
            let name = name.split(|b| *b == 0).next().unwrap_or_default();
            let name = std::str::from_utf8(name).map_err(|_| Error::Damaged("a section has no name"))?;
            if name == END {
                let count = (sections.len() as u64).to_le_bytes();
                let whole = rest.is_empty() && content == count;
                return if whole {
                    Ok(Reader { sections })
                } else {
                    Err(Error::Damaged("its end is not the end"))
                };
            }
            if sections.len() == MANY || sections.insert(name, content).is_some() {
                return Err(Error::Damaged("it has a section twice, or too many"));
            }
        }
    }

    /// The same out of the file's first bytes, [`FIRST`] of which are enough; nothing else of the file is checked.
    pub fn about_from(bytes: &[u8]) -> Result<About, Error> {
        let short = || Error::Damaged("it ends in its first section");
        let rest = bytes.get(HEAD..).ok_or_else(short)?;
        let len = u64::from_le_bytes(number(rest, NAME));
        let end = usize::try_from(len).ok().filter(|len| *len < FIRST).ok_or_else(short)?;
        let section = rest.get(..SECTION + end).ok_or_else(short)?;
        let mut whole = bytes.get(..HEAD).unwrap_or_default().to_vec();
        whole.extend(section);
        let mut writer = Writer { bytes: whole, sections: 1 };
        writer.raw(END, &1u64.to_le_bytes())?;
        Reader::new(&writer.bytes)?.about()
    }

    /// What the image says of itself.
    pub fn about(&self) -> Result<About, Error> {
        self.section(ABOUT)
    }

    /// The names of the sections.
    pub fn names(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.sections.keys().copied()
    }

    /// The content of a section.
    pub fn section<T: DeserializeOwned>(&self, name: &str) -> Result<T, Error> {
        self.optional(name)?.ok_or_else(|| Error::Missing(name.into()))
    }

    /// The content of a section that need not be there.
    pub fn optional<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Error> {
        let Some(mut content) = self.sections.get(name).copied() else { return Ok(None) };
        let failed = |why: String| Error::Content(name.into(), why);
        let value = ciborium::de::from_reader_with_recursion_limit(&mut content, DEEP);
        let value = value.map_err(|e: ciborium::de::Error<std::io::Error>| failed(e.to_string()))?;
        if content.is_empty() { Ok(Some(value)) } else { Err(failed("something follows its value".into())) }
    }

    /// The checksums of the file of pages; that of a clone has none.
    pub fn sums(&self) -> Option<Sums> {
        self.sections.get(SUMS).map(|bytes| Sums::from_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about() -> About {
        About { version: "0.4.0".into(), pages: 4096, features: vec!["avx".into()], ..About::default() }
    }

    #[test]
    fn the_first_bytes_tell_of_the_image() {
        let mut writer = Writer::new(&about()).unwrap();
        writer.section("more", &vec![1u64; 100]).unwrap();
        let bytes = writer.finish().unwrap();
        let whole = (0..bytes.len()).find(|n| Reader::about_from(&bytes[..*n]).is_ok()).unwrap();
        assert!(whole < bytes.len() - 100, "{whole}");
        assert_eq!(Reader::about_from(&bytes), Ok(about()));
        for at in 0..whole {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(Reader::about_from(&changed).is_err(), "{at}");
        }
        let mut other = Writer { bytes: bytes[..HEAD].to_vec(), sections: 0 };
        other.section("more", &1).unwrap();
        assert!(Reader::about_from(&other.bytes).is_err());
    }

    fn sample() -> Vec<u8> {
        let mut w = Writer::new(&about()).unwrap();
        w.section("tasks", &vec![(1u64, "init"), (2, "sh")]).unwrap();
        w.sums(&Sums::of(&[1; 4096])).unwrap();
        w.finish().unwrap()
    }

    type All = (About, Vec<(u64, String)>, Option<Sums>);

    /// All that a reader reads.
    fn read(bytes: &[u8]) -> Result<All, Error> {
        let r = Reader::new(bytes)?;
        Ok((r.about()?, r.section("tasks")?, r.sums()))
    }

    #[test]
    fn sections_come_back() {
        let bytes = sample();
        let (found, tasks, sums) = read(&bytes).unwrap();
        assert_eq!((found, tasks[1].clone()), (about(), (2, "sh".into())));
        assert!(sums.unwrap().check(0, &[1; 4096]));
        let r = Reader::new(&bytes).unwrap();
        assert_eq!(r.names().collect::<Vec<_>>(), ["about", "sums", "tasks"]);
        assert_eq!(r.optional::<u64>("none"), Ok(None));
        assert_eq!(r.section::<u64>("none"), Err(Error::Missing("none".into())));
        assert!(matches!(r.section::<u64>("tasks"), Err(Error::Content(..))));
    }

    #[test]
    fn no_part_of_it_passes_for_the_whole() {
        let bytes = sample();
        for n in 0..bytes.len() {
            assert!(read(&bytes[..n]).is_err(), "{n} bytes");
        }
        assert!(read(&[&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = sample();
        for at in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[at / 8] ^= 1 << (at % 8);
            assert!(read(&changed).is_err(), "bit {at}");
        }
    }

    #[test]
    fn a_newer_format_is_named() {
        let mut bytes = sample();
        bytes[8] = 2;
        assert_eq!(read(&bytes), Err(Error::Newer(2)));
        assert!(Error::Newer(2).to_string().contains("newer ringfence"));
        assert_eq!(read(b"{}"), Err(Error::NoImage));
        assert_eq!(read(b""), Err(Error::NoImage));
    }

    #[test]
    fn absurd_lengths_allocate_nothing() {
        let bytes = sample();
        for len in [u64::MAX, 1 << 40, bytes.len() as u64] {
            let mut changed = bytes.clone();
            changed[HEAD + NAME..][..8].copy_from_slice(&len.to_le_bytes());
            assert_eq!(read(&changed).unwrap_err(), Error::Damaged("it ends in a section"));
        }
        // The same inside of a section: CBOR that promises 2^60 elements, bytes, or levels.
        for content in [&b"\x9b\x10\0\0\0\0\0\0\0"[..], b"\x5b\x10\0\0\0\0\0\0\0", &[0x81; 100_000]] {
            let mut w = Writer::new(&about()).unwrap();
            w.raw("tasks", content).unwrap();
            let bytes = w.finish().unwrap();
            let r = Reader::new(&bytes).unwrap();
            assert!(matches!(r.section::<Vec<ciborium::Value>>("tasks"), Err(Error::Content(..))));
        }
    }

    #[test]
    fn names_are_short_and_unique() {
        let mut w = Writer::new(&about()).unwrap();
        assert!(w.section("seventeen bytes..", &1).is_err() && w.section("", &1).is_err());
        w.section("about", &1).unwrap();
        assert!(Reader::new(&w.finish().unwrap()).is_err());
    }
}
