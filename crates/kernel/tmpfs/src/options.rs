//! Mount options. See tmpfs(5).

use abi::{Errno, Result};

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

/// A size with suffix k, m, g or %.
fn size(v: &str) -> Result<u64> {
    let (digits, unit) = match v.chars().last() {
        Some('k' | 'K') => (&v[..v.len() - 1], 1 << 10),
        Some('m' | 'M') => (&v[..v.len() - 1], 1 << 20),
        Some('g' | 'G') => (&v[..v.len() - 1], 1 << 30),
        Some('%') => (&v[..v.len() - 1], hostsys::fs::total_memory() / 100),
        _ => (v, 1),
    };
    digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).ok_or(Errno::EINVAL)
}

impl Options {
    /// Parses `size=64m,mode=755,...`; EINVAL for what tmpfs does not know.
    pub fn parse(text: &[u8]) -> Result<Options> {
        let mut o = Options::default();
        o.update(text)?;
        Ok(o)
    }

    /// Applies options on top of these (remount).
    pub fn update(&mut self, text: &[u8]) -> Result<()> {
        let text = std::str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
        let mut shown = Vec::new();
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
                "uid" => {
                    self.uid = id()?;
                    shown.push(format!("uid={v}"));
                }
                "gid" => {
                    self.gid = id()?;
                    shown.push(format!("gid={v}"));
                }
                "huge" | "mpol" | "inode32" | "inode64" | "noswap" => {}
                _ => return Err(Errno::EINVAL),
            }
        }
        self.text = shown.join(",");
        Ok(())
    }
}
