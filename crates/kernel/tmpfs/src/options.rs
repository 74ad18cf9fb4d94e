//! Mount options. See tmpfs(5).
//!
//! Key type: [`Options`], plain data, which a checkpoint keeps.

use abi::{Errno, Result};
use mounts::fs_parameters::{ParameterSpec, Takes, is_octal, is_u32, number};
use rights::Credentials;

/// Parsed mount options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of data; `None` is unlimited.
    pub size: Option<u64>,
    /// Inodes; `None` is unlimited.
    pub inodes: Option<u64>,
    /// Mode of the root directory.
    pub mode: u32,
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory.
    pub gid: u32,
    /// What of it was given, as /proc/mounts shows it.
    pub text: String,
}

impl Default for Options {
    fn default() -> Options {
        let half = hostsys::fs::total_memory() / 2;
        // An inode for every second page of memory, as tmpfs(5) says.
        let inodes = Some(half / 4096);
        Options { size: Some(half), inodes, mode: 0o1777, uid: 0, gid: 0, text: String::new() }
    }
}

/// The parameters that fsconfig(2) and mount(2) may set.
pub const KNOWN: &[ParameterSpec] = &[
    ("size", Takes::Checked(is_size)),
    ("nr_blocks", Takes::Checked(is_number)),
    ("nr_inodes", Takes::Checked(is_number)),
    ("mode", Takes::Checked(is_octal)),
    ("uid", Takes::Checked(is_u32)),
    ("gid", Takes::Checked(is_u32)),
    ("huge", Takes::Word(&["never", "always", "within_size", "advise"])),
    ("mpol", Takes::Text),
    ("inode32", Takes::Flag),
    ("inode64", Takes::Flag),
    ("noswap", Takes::Flag),
];

/// The order in which they are shown.
const SHOWN: &[&str] = &["size", "nr_inodes", "mode", "uid", "gid", "noswap"];

fn is_size(s: &str) -> bool {
    size(s).is_ok()
}

fn is_number(s: &str) -> bool {
    !s.ends_with('%') && is_size(s)
}

/// A number with a suffix from k to e, or % of the memory.
fn size(v: &str) -> Result<u64> {
    const SUFFIXES: &str = "kmgtpe";
    let last = v.chars().last().map(|c| c.to_ascii_lowercase());
    let hex = v.starts_with("0x") || v.starts_with("0X");
    let (digits, unit) = match last {
        Some('%') => (&v[..v.len() - 1], hostsys::fs::total_memory() / 100),
        Some(c) if !(hex && c == 'e') && SUFFIXES.contains(c) => {
            (&v[..v.len() - 1], SUFFIXES.find(c).map_or(1, |i| 1 << (10 * (i + 1))))
        }
        _ => (v, 1),
    };
    number(digits).and_then(|n| n.checked_mul(unit)).ok_or(Errno::EINVAL)
}

impl Options {
    /// Parses `size=64m,mode=755,...`; EINVAL for what tmpfs does not know.
    pub fn parse(text: &[u8]) -> Result<Options> {
        let mut o = Options::default();
        o.update(text)?;
        Ok(o)
    }

    /// The same for a task that mounts: the root belongs to the task's user, and IDs are those of its user namespace.
    /// EINVAL for one that it does not have.
    pub fn parse_for(creds: &Credentials, text: &[u8]) -> Result<Options> {
        let mut o = Options { uid: u32::MAX, gid: u32::MAX, ..Options::default() };
        o.update(text)?;
        let ns = &creds.user_ns;
        o.uid = if o.uid == u32::MAX { creds.fsuid } else { ns.user(o.uid).ok_or(Errno::EINVAL)? };
        o.gid = if o.gid == u32::MAX { creds.fsgid } else { ns.group(o.gid).ok_or(Errno::EINVAL)? };
        Ok(o)
    }

    /// Applies options on top of these (remount).
    pub fn update(&mut self, text: &[u8]) -> Result<()> {
        let text = std::str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
        let mut shown: Vec<String> = Vec::new();
        for word in text.split(',').filter(|w| !w.is_empty()) {
            let (k, v) = word.split_once('=').unwrap_or((word, ""));
            let id = || v.parse::<u32>().map_err(|_| Errno::EINVAL);
            match k {
                "size" => {
                    let n = size(v)?.next_multiple_of(4096);
                    self.size = (n != 0).then_some(n);
                    shown.push(format!("size={}k", n / 1024));
                }
                "nr_blocks" => {
                    let n = size(v)?.saturating_mul(4096);
                    self.size = (n != 0).then_some(n);
                    shown.push(format!("size={}k", n / 1024));
                }
                "nr_inodes" => {
                    let n = size(v)?;
                    self.inodes = (n != 0).then_some(n);
                    shown.push(format!("nr_inodes={n}"));
                }
                "mode" => {
                    self.mode = u32::from_str_radix(v, 8).map_err(|_| Errno::EINVAL)? & 0o7777;
                    if self.mode != 0o1777 {
                        shown.push(format!("mode={:o}", self.mode));
                    }
                }
                "noswap" => shown.push("noswap".into()),
                "uid" => {
                    self.uid = id()?;
                    shown.push(format!("uid={v}"));
                }
                "gid" => {
                    self.gid = id()?;
                    shown.push(format!("gid={v}"));
                }
                "huge" | "mpol" | "inode32" | "inode64" => {}
                _ => return Err(Errno::EINVAL),
            }
        }
        // What was given before stays, unless it was given again.
        let name = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
        let old: Vec<String> = self.text.split(',').filter(|w| !w.is_empty()).map(str::to_owned).collect();
        let last = |key: &&str| shown.iter().rev().chain(&old).find(|w| name(w) == **key).cloned();
        self.text = SHOWN.iter().filter_map(last).collect::<Vec<_>>().join(",");
        Ok(())
    }
}
