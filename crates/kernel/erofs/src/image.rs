//! The format on disk, read from any source of bytes at an offset. See Documentation/filesystems/erofs.rst and Linux's
//! definition of the format.
//!
//! An image comes from a guest and is not trusted. Every number is checked where it is read: sums that overflow and
//! structures that leave their block are EUCLEAN, places behind the end of the image EIO. No call reads more than one
//! block of names, the attributes of one inode (256 KiB) or what its caller has room for, and none recurses.

use crate::crc::crc32c;
use abi::{Errno, Result};

/// Where the super block is.
const SUPER: u64 = 1024;
/// Bytes of it that are read.
const SUPER_LEN: usize = 128;
/// EROFS_SUPER_MAGIC_V1.
pub const MAGIC: u32 = 0xe0f5_e1e2;
/// EROFS_FEATURE_COMPAT_SB_CHKSUM.
const CHECKSUM: u32 = 1;
/// Features that change how an image is read and that are known: EROFS_FEATURE_INCOMPAT_ZERO_PADDING, which only compressed
/// inodes care about, and EROFS_FEATURE_INCOMPAT_CHUNKED_FILE.
const KNOWN: u32 = 1 | 4;
/// Address of a block that is not there: a hole.
const HOLE: u32 = u32::MAX;
/// Bytes of a directory entry.
const DIRENT: usize = 12;
/// Bytes before the shared attributes and the own ones of an inode.
const XATTR_HEADER: usize = 12;

/// Bytes at offsets.
pub trait Source {
    /// Fills `buf` from byte `at` on. EIO when the image ends before.
    fn read_at(&self, at: u64, buf: &mut [u8]) -> Result<()>;
}

fn le16(b: &[u8], at: usize) -> Result<u16> {
    let bytes = b.get(at..).and_then(|b| b.first_chunk()).ok_or(Errno::EUCLEAN)?;
    Ok(u16::from_le_bytes(*bytes))
}

fn le32(b: &[u8], at: usize) -> Result<u32> {
    let bytes = b.get(at..).and_then(|b| b.first_chunk()).ok_or(Errno::EUCLEAN)?;
    Ok(u32::from_le_bytes(*bytes))
}

fn le64(b: &[u8], at: usize) -> Result<u64> {
    let bytes = b.get(at..).and_then(|b| b.first_chunk()).ok_or(Errno::EUCLEAN)?;
    Ok(u64::from_le_bytes(*bytes))
}

/// What the super block says.
#[derive(Clone, Debug)]
pub struct Super {
    /// Bytes of a block, as a power of two, 9 to 12.
    pub block_bits: u32,
    /// Number of the root directory.
    pub root: u64,
    /// Inodes, as the image counts them.
    pub inodes: u64,
    /// Blocks, as the image counts them.
    pub blocks: u64,
    /// Identification.
    pub uuid: [u8; 16],
    /// Time of compact inodes, in seconds and nanoseconds.
    time: (i64, u32),
    /// Where inodes are.
    meta: u64,
    /// Where shared attributes are.
    shared: u64,
}

/// Where the bytes of an inode are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// One run of blocks from this byte on; `None` for zeros.
    Plain(Option<u64>),
    /// The same but for the last block, which starts at byte `tail`.
    Inline { start: Option<u64>, tail: u64 },
    /// Chunks of `1 << bits` bytes. Their addresses are at `table`, in entries of 8 bytes if `wide`, of 4 otherwise.
    Chunks { bits: u32, table: u64, wide: bool },
}

/// An inode.
#[derive(Clone, Debug)]
pub struct Inode {
    /// Its number, which stands for its place.
    pub nid: u64,
    /// Type and permission bits; the type is one of the seven that there are.
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes, at most `i64::MAX`.
    pub size: u64,
    /// Number of a device, as Linux encodes it in 32 bits.
    pub rdev: u32,
    /// Last change, in seconds and nanoseconds.
    pub time: (i64, u32),
    layout: Layout,
    /// Where its attributes are, and how many bytes.
    xattrs: (u64, usize),
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of the inode.
    pub nid: u64,
    /// DT_* type.
    pub kind: u8,
    /// The name: 1 to 255 bytes without slash and NUL.
    pub name: Vec<u8>,
}

/// A run of bytes of an inode that lie together: where, or `None` for zeros, and how many at most.
type Run = (Option<u64>, u64);

impl Super {
    /// Reads the super block. EINVAL for what is no image or needs features that are not known, EBADMSG when the checksum is wrong,
    /// EIO when the image is too short for a super block.
    pub fn read(from: &dyn Source) -> Result<Super> {
        let mut b = [0; SUPER_LEN];
        from.read_at(SUPER, &mut b)?;
        if le32(&b, 0)? != MAGIC {
            return Err(Errno::EINVAL);
        }
        let block_bits = u32::from(b[12]);
        if !(9..=12).contains(&block_bits) {
            return Err(Errno::EINVAL);
        }
        if le32(&b, 8)? & CHECKSUM != 0 {
            check_sum(from, block_bits, le32(&b, 4)?)?;
        }
        // Blocks of directories have the size of others; the super block and its slots end with the first page.
        let slots = u64::from(b[13]) * 16 + SUPER_LEN as u64;
        if le32(&b, 80)? & !KNOWN != 0 || b[90] != 0 || slots > 4096 - SUPER {
            return Err(Errno::EINVAL);
        }
        let at = |block: u32| u64::from(block) << block_bits;
        Ok(Super {
            block_bits,
            root: le16(&b, 14)?.into(),
            inodes: le64(&b, 16)?,
            blocks: le32(&b, 36)?.into(),
            uuid: std::array::from_fn(|i| b[48 + i]),
            time: (le64(&b, 24)? as i64, le32(&b, 32)?.min(999_999_999)),
            meta: at(le32(&b, 40)?),
            shared: at(le32(&b, 44)?),
        })
    }

    fn block(&self) -> u64 {
        1 << self.block_bits
    }

    /// Reads an inode. EUCLEAN for what cannot be one, EOPNOTSUPP for a layout or form that is not known, compressed ones among
    /// them.
    pub fn inode(&self, from: &dyn Source, nid: u64) -> Result<Inode> {
        let place = nid.checked_mul(32).and_then(|n| n.checked_add(self.meta)).ok_or(Errno::EUCLEAN)?;
        let mut b = [0; 64];
        from.read_at(place, &mut b[..32])?;
        let format = le16(&b, 0)?;
        let extended = format & 1 != 0;
        if format >> 4 != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if extended {
            from.read_at(place + 32, &mut b[32..])?;
        }
        let len = if extended { 64 } else { 32 };
        let words = usize::from(le16(&b, 2)?);
        let xattr_len = if words == 0 { 0 } else { XATTR_HEADER + (words - 1) * 4 };
        let xattrs = place.checked_add(len).ok_or(Errno::EUCLEAN)?;
        let behind = xattrs.checked_add(xattr_len as u64).ok_or(Errno::EUCLEAN)?;
        let mode = u32::from(le16(&b, 4)?);
        let (size, nlink, uid, gid, time) = if extended {
            let time = (le64(&b, 32)? as i64, le32(&b, 40)?.min(999_999_999));
            (le64(&b, 8)?, le32(&b, 44)?, le32(&b, 24)?, le32(&b, 28)?, time)
        } else {
            let time = (self.time.0.wrapping_add(le32(&b, 12)?.into()), self.time.1);
            (le32(&b, 8)?.into(), le16(&b, 6)?.into(), le16(&b, 24)?.into(), le16(&b, 26)?.into(), time)
        };
        if i64::try_from(size).is_err() {
            return Err(Errno::EUCLEAN);
        }
        let own = le32(&b, 16)?;
        let rdev = match mode & libc::S_IFMT {
            libc::S_IFREG | libc::S_IFDIR | libc::S_IFLNK | libc::S_IFIFO | libc::S_IFSOCK => 0,
            libc::S_IFCHR | libc::S_IFBLK => own,
            _ => return Err(Errno::EUCLEAN),
        };
        let start = (own != HOLE).then(|| u64::from(own) << self.block_bits);
        let layout = match format >> 1 & 7 {
            0 => Layout::Plain(start),
            2 => Layout::Inline { start, tail: behind },
            4 if own & 0xffff & !0x3f != 0 => return Err(Errno::EOPNOTSUPP),
            4 => {
                let wide = own & 0x20 != 0;
                let table =
                    behind.checked_next_multiple_of(if wide { 8 } else { 4 }).ok_or(Errno::EUCLEAN)?;
                Layout::Chunks { bits: self.block_bits + (own & 0x1f), table, wide }
            }
            // Compressed (1 and 3), and those that do not exist.
            _ => return Err(Errno::EOPNOTSUPP),
        };
        Ok(Inode { nid, mode, nlink, uid, gid, size, rdev, time, layout, xattrs: (xattrs, xattr_len) })
    }

    /// The bytes from `off` on, which is inside the inode.
    fn run(&self, from: &dyn Source, inode: &Inode, off: u64) -> Result<Run> {
        let left = inode.size.checked_sub(off).ok_or(Errno::EUCLEAN)?;
        let behind =
            |start: Option<u64>| start.map(|start| start.checked_add(off).ok_or(Errno::EUCLEAN)).transpose();
        match inode.layout {
            Layout::Plain(start) => Ok((behind(start)?, left)),
            Layout::Inline { start, tail } => {
                let last = inode.size.saturating_sub(1) / self.block() * self.block();
                if off < last {
                    return Ok((behind(start)?, last - off));
                }
                // The tail lies in the block of its inode.
                let end = (tail % self.block()).saturating_add(inode.size - last);
                if end > self.block() {
                    return Err(Errno::EUCLEAN);
                }
                Ok((Some(tail.checked_add(off - last).ok_or(Errno::EUCLEAN)?), left))
            }
            Layout::Chunks { bits, table, wide } => {
                let (chunk, within) = (off >> bits, off & ((1 << bits) - 1));
                let width = if wide { 8 } else { 4 };
                let entry = chunk.checked_mul(width).and_then(|n| n.checked_add(table));
                let mut b = [0; 8];
                from.read_at(entry.ok_or(Errno::EUCLEAN)?, &mut b[..width as usize])?;
                let block = if wide { le32(&b, 4)? } else { le32(&b, 0)? };
                let len = left.min((1 << bits) - within);
                if block == HOLE {
                    return Ok((None, len));
                }
                // Images on further devices need a feature that is not known.
                if wide && le16(&b, 2)? != 0 {
                    return Err(Errno::EIO);
                }
                let start = u64::from(block) << self.block_bits;
                Ok((Some(start.checked_add(within).ok_or(Errno::EUCLEAN)?), len))
            }
        }
    }

    /// Reads bytes of an inode, fewer than there is room for only at its end.
    pub fn read_data(&self, from: &dyn Source, inode: &Inode, buf: &mut [u8], off: u64) -> Result<usize> {
        let left = inode.size.saturating_sub(off);
        let want = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        let mut done = 0;
        while done < want {
            let (place, len) = self.run(from, inode, off + done as u64)?;
            let n = usize::try_from(len).map_or(want - done, |len| len.min(want - done));
            if n == 0 {
                return Err(Errno::EUCLEAN);
            }
            let piece = &mut buf[done..done + n];
            match place {
                Some(place) => from.read_at(place, piece)?,
                None => piece.fill(0),
            }
            done += n;
        }
        Ok(done)
    }

    /// The text of a symbolic link, at most 4095 bytes of it.
    pub fn link(&self, from: &dyn Source, inode: &Inode) -> Result<Vec<u8>> {
        let mut text = vec![0; inode.size.min(4095) as usize];
        self.read_data(from, inode, &mut text, 0)?;
        text.truncate(text.iter().position(|&b| b == 0).unwrap_or(text.len()));
        Ok(text)
    }

    /// A block of a directory.
    fn names(&self, from: &dyn Source, dir: &Inode, block: u64) -> Result<Names> {
        let start = block.checked_mul(self.block()).filter(|&at| at < dir.size).ok_or(Errno::EUCLEAN)?;
        let mut bytes = vec![0; (dir.size - start).min(self.block()) as usize];
        self.read_data(from, dir, &mut bytes, start)?;
        let first = usize::from(le16(&bytes, 8)?);
        if first < DIRENT || first % DIRENT != 0 || first > bytes.len() {
            return Err(Errno::EUCLEAN);
        }
        Ok(Names { bytes, count: first / DIRENT })
    }

    /// Finds a name in a directory: names are in order, in each block and over all of them. ENOENT.
    pub fn find(&self, from: &dyn Source, dir: &Inode, name: &[u8]) -> Result<u64> {
        let (mut low, mut high) = (0, dir.size.div_ceil(self.block()));
        // The last block with a first name that is not behind the wanted one.
        let mut found = None;
        while low < high {
            let middle = low + (high - low) / 2;
            let names = self.names(from, dir, middle)?;
            if names.get(0)?.name.as_slice() > name {
                high = middle;
            } else {
                found = Some(names);
                low = middle + 1;
            }
        }
        let names = found.ok_or(Errno::ENOENT)?;
        let (mut low, mut high) = (0, names.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = names.get(middle)?;
            match entry.name.as_slice().cmp(name) {
                std::cmp::Ordering::Equal => return Ok(entry.nid),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(Errno::ENOENT)
    }

    /// Offers entries from position `at` on, `.` and `..` left out, until `take` refuses one. A position is the place of an entry
    /// among the directory's bytes; `take` gets the position that follows. Gives the position to go on with.
    pub fn list(
        &self,
        from: &dyn Source,
        dir: &Inode,
        mut at: u64,
        take: &mut dyn FnMut(u64, Entry) -> bool,
    ) -> Result<u64> {
        // Names ascend, so an image cannot show more of them than it has bytes.
        let mut last: Option<Vec<u8>> = None;
        while at < dir.size {
            let block = at / self.block();
            let names = self.names(from, dir, block)?;
            let mut shown = block == 0;
            let first = usize::try_from(at % self.block()).map_err(|_| Errno::EUCLEAN)?.div_ceil(DIRENT);
            shown |= first > 0;
            for i in first..names.count {
                let entry = names.get(i)?;
                let next = block * self.block() + ((i + 1) * DIRENT) as u64;
                if last.is_some_and(|last| last >= entry.name) {
                    return Err(Errno::EUCLEAN);
                }
                last = Some(entry.name.clone());
                if entry.name != b"." && entry.name != b".." {
                    shown = true;
                    if !take(next, entry) {
                        return Ok(next - DIRENT as u64);
                    }
                }
            }
            // A directory of nothing but dots would be a walk without an end.
            if !shown {
                return Err(Errno::EUCLEAN);
            }
            at = (block + 1).checked_mul(self.block()).ok_or(Errno::EUCLEAN)?;
        }
        Ok(at)
    }

    /// The extended attributes of an inode, names with their prefixes, until `take` has enough.
    pub fn xattrs(
        &self,
        from: &dyn Source,
        inode: &Inode,
        take: &mut dyn FnMut(Vec<u8>, &[u8]) -> bool,
    ) -> Result<()> {
        let (place, len) = inode.xattrs;
        if len == 0 {
            return Ok(());
        }
        let mut area = vec![0; len];
        from.read_at(place, &mut area)?;
        let shared = usize::from(area[4]);
        let mut at = XATTR_HEADER + shared * 4;
        while at < len {
            let head = area.get(at..at + 4).ok_or(Errno::EUCLEAN)?;
            let (name_len, value_len) = (usize::from(head[0]), usize::from(le16(head, 2)?));
            let end = at + 4 + name_len + value_len;
            let body = area.get(at + 4..end).ok_or(Errno::EUCLEAN)?;
            let (name, value) = body.split_at(name_len);
            if prefixed(head[1], name).is_some_and(|name| !take(name, value)) {
                return Ok(());
            }
            at = end.next_multiple_of(4);
        }
        for i in 0..shared {
            let id = u64::from(le32(&area, XATTR_HEADER + i * 4)?);
            let place = self.shared.checked_add(id * 4).ok_or(Errno::EUCLEAN)?;
            let mut head = [0; 4];
            from.read_at(place, &mut head)?;
            let (name_len, value_len) = (usize::from(head[0]), usize::from(le16(&head, 2)?));
            let mut body = vec![0; name_len + value_len];
            from.read_at(place.checked_add(4).ok_or(Errno::EUCLEAN)?, &mut body)?;
            let (name, value) = body.split_at(name_len);
            if prefixed(head[1], name).is_some_and(|name| !take(name, value)) {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// A name with the prefix of its index; `None` for an index that is not known, which Linux leaves out as well.
fn prefixed(index: u8, name: &[u8]) -> Option<Vec<u8>> {
    let prefix: &[u8] = match index {
        1 => b"user.",
        2 => b"system.posix_acl_access",
        3 => b"system.posix_acl_default",
        4 => b"trusted.",
        6 => b"security.",
        _ => return None,
    };
    let whole = matches!(index, 2 | 3);
    (name.is_empty() == whole).then(|| [prefix, name].concat())
}

/// A block of a directory: entries, and then their names.
struct Names {
    bytes: Vec<u8>,
    count: usize,
}

impl Names {
    fn get(&self, i: usize) -> Result<Entry> {
        let at = i * DIRENT;
        let start = usize::from(le16(&self.bytes, at + 8)?);
        let end = if i + 1 < self.count {
            usize::from(le16(&self.bytes, at + DIRENT + 8)?)
        } else {
            self.bytes.len()
        };
        let name = self.bytes.get(start..end).ok_or(Errno::EUCLEAN)?;
        // Behind the last name are zeros.
        let name = match name.iter().position(|&b| b == 0) {
            Some(n) if i + 1 == self.count => &name[..n],
            _ => name,
        };
        if start < self.count * DIRENT || !(1..=255).contains(&name.len()) {
            return Err(Errno::EUCLEAN);
        }
        if name.iter().any(|&b| b == 0 || b == b'/') {
            return Err(Errno::EUCLEAN);
        }
        let kind = match self.bytes.get(at + 10) {
            Some(1) => libc::DT_REG,
            Some(2) => libc::DT_DIR,
            Some(3) => libc::DT_CHR,
            Some(4) => libc::DT_BLK,
            Some(5) => libc::DT_FIFO,
            Some(6) => libc::DT_SOCK,
            Some(7) => libc::DT_LNK,
            _ => libc::DT_UNKNOWN,
        };
        Ok(Entry { nid: le64(&self.bytes, at)?, kind, name: name.to_vec() })
    }
}

/// The checksum of the super block's block, itself as zeros. EBADMSG.
fn check_sum(from: &dyn Source, block_bits: u32, sum: u32) -> Result<()> {
    // A block that ends before the super block counts from there.
    let block = 1usize << block_bits;
    let len = if block > SUPER as usize { block - SUPER as usize } else { block };
    let mut b = vec![0; len];
    from.read_at(SUPER, &mut b)?;
    b.get_mut(4..8).ok_or(Errno::EINVAL)?.fill(0);
    if crc32c(&b) == sum { Ok(()) } else { Err(Errno::EBADMSG) }
}
