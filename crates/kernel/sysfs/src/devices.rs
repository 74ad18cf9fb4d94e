//! /sys/devices/virtual, /sys/dev/char and the classes that lead there: the character devices that the kernel has.

use abi::{Errno, Result};
use kernfs::{At, Child, Entry, Names, dir, line, link, text};

/// A character device.
struct Device {
    class: &'static str,
    name: &'static str,
    number: (u32, u32),
    /// Permission bits of its node, where the driver asks for some.
    mode: Option<u32>,
}

const fn device(class: &'static str, name: &'static str, number: (u32, u32), mode: Option<u32>) -> Device {
    Device { class, name, number, mode }
}

static ALL: [Device; 11] = [
    device("mem", "full", (1, 7), Some(0o666)),
    device("mem", "kmsg", (1, 11), Some(0o644)),
    device("mem", "null", (1, 3), Some(0o666)),
    device("mem", "random", (1, 8), Some(0o666)),
    device("mem", "urandom", (1, 9), Some(0o666)),
    device("mem", "zero", (1, 5), Some(0o666)),
    device("misc", "fuse", (10, 229), None),
    device("misc", "tun", (10, 200), None),
    device("tty", "console", (5, 1), None),
    device("tty", "ptmx", (5, 2), Some(0o666)),
    device("tty", "tty", (5, 0), Some(0o666)),
];

/// The directory of the device at place `At::n` of the table.
static DEVICE: Entry = dir("device", &IN_DEVICE);
static IN_DEVICE: [Entry; 3] = [
    text("dev", |at| {
        let (major, minor) = of(at)?.number;
        line(format_args!("{major}:{minor}"))
    }),
    link("subsystem", |at| Ok(format!("../../../../class/{}", of(at)?.class).into_bytes())),
    text("uevent", |at| {
        let d = of(at)?;
        let name = if d.name == "tun" { "net/tun" } else { d.name };
        let mode = d.mode.map_or(String::new(), |mode| format!("DEVMODE=0{mode:03o}\n"));
        Ok(format!("MAJOR={}\nMINOR={}\nDEVNAME={name}\n{mode}", d.number.0, d.number.1).into_bytes())
    }),
];

static FROM_CLASS: Entry = link("device", |at| target(at, "../../devices/virtual"));
static FROM_NUMBER: Entry = link("device", |at| target(at, "../../devices/virtual"));

fn of(at: &At) -> Result<&'static Device> {
    usize::try_from(at.n).ok().and_then(|n| ALL.get(n)).ok_or(Errno::ENOENT)
}

fn target(at: &At, base: &str) -> Result<Vec<u8>> {
    let d = of(at)?;
    Ok(format!("{base}/{}/{}", d.class, d.name).into_bytes())
}

/// The devices of a class, as directories or as links to those.
pub(crate) struct Class {
    name: &'static str,
    entry: &'static Entry,
}

impl Class {
    /// Below /sys/devices/virtual.
    pub(crate) const fn directories(name: &'static str) -> Class {
        Class { name, entry: &DEVICE }
    }

    /// Below /sys/class.
    pub(crate) const fn links(name: &'static str) -> Class {
        Class { name, entry: &FROM_CLASS }
    }

    fn members(&self) -> impl Iterator<Item = (usize, &'static Device)> {
        ALL.iter().enumerate().filter(|(_, d)| d.class == self.name)
    }

    fn child(&self, n: usize) -> Child {
        Child { entry: self.entry, proc: None, n: n as i64 }
    }
}

impl Names for Class {
    fn find(&self, _at: &At, name: &[u8]) -> Result<Child> {
        let found = self.members().find(|(_, d)| d.name.as_bytes() == name);
        found.map(|(n, _)| self.child(n)).ok_or(Errno::ENOENT)
    }
    fn list(&self, _at: &At) -> Result<Vec<(u64, String, Child)>> {
        Ok(self.members().map(|(n, d)| (n as u64, d.name.to_string(), self.child(n))).collect())
    }
    fn subdirs(&self, _at: &At) -> u64 {
        if std::ptr::eq(self.entry, &DEVICE) { self.members().count() as u64 } else { 0 }
    }
}

/// /sys/dev/char.
pub(crate) struct Numbers;

fn numbered(n: usize, d: &Device) -> (u64, String, Child) {
    let (major, minor) = d.number;
    (n as u64, format!("{major}:{minor}"), Child { entry: &FROM_NUMBER, proc: None, n: n as i64 })
}

impl Names for Numbers {
    fn find(&self, at: &At, name: &[u8]) -> Result<Child> {
        let found = self.list(at)?.into_iter().find(|(_, n, _)| n.as_bytes() == name);
        found.map(|(_, _, child)| child).ok_or(Errno::ENOENT)
    }
    fn list(&self, _at: &At) -> Result<Vec<(u64, String, Child)>> {
        Ok(ALL.iter().enumerate().map(|(n, d)| numbered(n, d)).collect())
    }
}
