//! /sys/devices/virtual/block: the loop devices of the reader's container. /sys/block, /sys/class/block and
//! /sys/dev/block have links to them. losetup(8), lsblk(8) and umount(8) read it.

use abi::{Errno, Result};
use kernfs::{At, Child, Entry, Names, What, dir, line, link, text};
use loopdev::About;

/// Bytes of a sector, in which sizes are counted.
const SECTOR: u64 = 512;
/// Major number of loop devices.
const MAJOR: u32 = 7;

/// The directory of the device with number `At::n`.
static DEVICE: Entry = Entry { name: "loop", mode: 0o555, what: What::Dir(&IN_DEVICE, Some(&Attached)) };
static IN_DEVICE: [Entry; 14] = [
    text("alignment_offset", |_| line(0)),
    text("dev", |at| line(format_args!("{MAJOR}:{}", at.n))),
    text("discard_alignment", |_| line(0)),
    text("ext_range", |_| line(256)),
    text("hidden", |_| line(0)),
    dir("holders", &[]),
    dir("queue", &QUEUE),
    text("range", |_| line(1)),
    text("removable", |_| line(0)),
    text("ro", |at| line(u8::from(of(at)?.read_only))),
    text("size", |at| line(of(at)?.size / SECTOR)),
    dir("slaves", &[]),
    link("subsystem", |_| Ok(b"../../../../class/block".to_vec())),
    text("uevent", |at| {
        let n = at.n;
        Ok(format!("MAJOR={MAJOR}\nMINOR={n}\nDEVNAME=loop{n}\nDEVTYPE=disk\n").into_bytes())
    }),
];
static QUEUE: [Entry; 6] = [
    text("hw_sector_size", |at| line(of(at)?.block_size)),
    text("logical_block_size", |at| line(of(at)?.block_size)),
    text("minimum_io_size", |at| line(of(at)?.block_size)),
    text("optimal_io_size", |_| line(0)),
    text("physical_block_size", |at| line(of(at)?.block_size)),
    text("read_ahead_kb", |at| line(of(at)?.read_ahead / 2)),
];
/// The directory that is there while a file is attached.
static LOOP: Entry = dir("loop", &IN_LOOP);
static IN_LOOP: [Entry; 6] = [
    text("autoclear", |at| line(u8::from(attached(at)?.autoclear))),
    text("backing_file", |at| {
        let mut name = at.show_file(&attached(at)?.file);
        name.push(b'\n');
        Ok(name)
    }),
    text("dio", |at| line(u8::from(attached(at)?.direct_io))),
    text("offset", |at| line(attached(at)?.offset)),
    text("partscan", |at| line(u8::from(attached(at)?.partscan))),
    text("sizelimit", |at| line(attached(at)?.size_limit)),
];

static FROM_BLOCK: Entry = link("device", |at| target(at, "../devices"));
static FROM_CLASS: Entry = link("device", |at| target(at, "../../devices"));

fn target(at: &At, base: &str) -> Result<Vec<u8>> {
    Ok(format!("{base}/virtual/block/loop{}", at.n).into_bytes())
}

fn of(at: &At) -> Result<About> {
    let number = u32::try_from(at.n).map_err(|_| Errno::ENOENT)?;
    at.container().loops.about(number).ok_or(Errno::ENOENT)
}

fn attached(at: &At) -> Result<loopdev::Attached> {
    of(at)?.attached.ok_or(Errno::ENOENT)
}

/// The devices of the container, by name or by number, as directories or as links to those.
pub(crate) struct Devices {
    entry: &'static Entry,
    by_number: bool,
}

/// /sys/devices/virtual/block.
pub(crate) static DIRECTORIES: Devices = Devices { entry: &DEVICE, by_number: false };
/// /sys/block.
pub(crate) static BLOCK: Devices = Devices { entry: &FROM_BLOCK, by_number: false };
/// /sys/class/block.
pub(crate) static CLASS: Devices = Devices { entry: &FROM_CLASS, by_number: false };
/// /sys/dev/block.
pub(crate) static NUMBERS: Devices = Devices { entry: &FROM_CLASS, by_number: true };

impl Names for Devices {
    fn find(&self, at: &At, name: &[u8]) -> Result<Child> {
        let found = self.list(at)?.into_iter().find(|(_, n, _)| n.as_bytes() == name);
        found.map(|(_, _, child)| child).ok_or(Errno::ENOENT)
    }
    fn list(&self, at: &At) -> Result<Vec<(u64, String, Child)>> {
        let numbers = at.container().loops.numbers();
        let child = |n: u32| Child { entry: self.entry, proc: None, n: n.into() };
        let name = |n| if self.by_number { format!("{MAJOR}:{n}") } else { format!("loop{n}") };
        Ok(numbers.into_iter().map(|n| (n.into(), name(n), child(n))).collect())
    }
    fn subdirs(&self, at: &At) -> u64 {
        if std::ptr::eq(self.entry, &DEVICE) { at.container().loops.numbers().len() as u64 } else { 0 }
    }
}

/// What a device has beside the entries of the table: `loop` while a file is attached.
struct Attached;

impl Names for Attached {
    fn find(&self, at: &At, name: &[u8]) -> Result<Child> {
        let found = self.list(at)?.into_iter().find(|(_, n, _)| n.as_bytes() == name);
        found.map(|(_, _, child)| child).ok_or(Errno::ENOENT)
    }
    fn list(&self, at: &At) -> Result<Vec<(u64, String, Child)>> {
        let child = of(at)?.attached.map(|_| Child { entry: &LOOP, proc: None, n: at.n });
        Ok(child.into_iter().map(|child| (1, "loop".to_string(), child)).collect())
    }
    fn subdirs(&self, at: &At) -> u64 {
        of(at).map_or(0, |about| u64::from(about.attached.is_some()))
    }
}
