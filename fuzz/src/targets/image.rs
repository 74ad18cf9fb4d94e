//! Images of checkpoints: the envelope, and what is in its sections.
//!
//! The first byte says what the rest is: 0 the whole metadata, else the content of a section, which gets a sound envelope
//! because no mutation would find its checksum.

use super::{kind, outcome};
use image::{About, Reader, Sums, Writer};
use mm::{MemoryState, SharedState};
use platform::Limits;
use tmpfs::ContentState;

pub(super) const WORDS: &[&str] = &[
    "RFIMAGE\0",
    "about",
    "sums",
    "end",
    "areas",
    "pages",
    "offset",
    "start",
    "SharedAnon",
    "policy",
    "size",
];

const LIMITS: Limits = Limits { min: 0x10000, max: 1 << 47, vdso: None, vvar: None, xstate_size: 832 };
/// Length of the file of pages.
const PAGES: u64 = 64 << 12;

pub(super) fn run(input: &[u8]) -> u64 {
    let Some((which, rest)) = input.split_first() else { return 0 };
    if *which == 0 {
        return match Reader::new(rest) {
            Ok(r) => outcome((r.names().count(), r.about().is_ok(), r.sums().is_some())),
            Err(e) => outcome(kind(&e.to_string())),
        };
    }
    let mut writer = Writer::new(&About::default()).expect("plain data");
    let value: Result<ciborium::Value, _> = ciborium::from_reader(rest);
    let Ok(value) = value else { return 1 };
    if writer.section("x", &value).is_err() {
        return 2;
    }
    writer.sums(&Sums::of(&[1; 4096])).expect("a free name");
    let bytes = writer.finish().expect("few sections");
    let reader = Reader::new(&bytes).expect("its own envelope");
    if let Ok(about) = reader.section::<About>("x") {
        return outcome((3, about.obstacle(&About::default()).map(|why| kind(&why))));
    }
    if let Ok(memory) = reader.section::<MemoryState>("x") {
        return match memory.record(&LIMITS, &|_| None, &[PAGES]) {
            Ok(map) => {
                let total: u64 = memory.areas.iter().map(|a| a.end - a.start).sum();
                assert_eq!(map.total(), total);
                let pages: u64 = memory.areas.iter().flat_map(|a| &a.pages).map(|e| e.len).sum();
                assert!(pages <= total);
                outcome((4, memory.areas.len().min(8)))
            }
            Err(why) => outcome((5, kind(&why))),
        };
    }
    if let Ok(shared) = reader.section::<SharedState>("x") {
        return outcome((6, image::check(&shared.pages, (0, shared.len), PAGES)));
    }
    if let Ok(content) = reader.section::<ContentState>("x") {
        return outcome((7, image::check(&content.pages, (0, content.size), PAGES)));
    }
    8
}
