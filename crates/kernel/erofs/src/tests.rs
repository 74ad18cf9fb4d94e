use crate::image::{Source, Super};
use abi::{Errno, Result};

/// An image that is made by hand: blocks of 512 bytes, inodes in the fourth.
struct Image(Vec<u8>);

impl Source for Image {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let from = self.0.get(at as usize..).ok_or(Errno::EIO)?;
        buf.copy_from_slice(from.get(..buf.len()).ok_or(Errno::EIO)?);
        Ok(())
    }
}

const INODES: usize = 2048;

impl Image {
    /// With an empty directory as its root, inode 0.
    fn new() -> Image {
        let mut image = Image(vec![0; 8192]);
        image.put(1024, &crate::image::MAGIC.to_le_bytes());
        image.put(1024 + 12, &[9]);
        image.put(1024 + 40, &[(INODES / 512) as u8]);
        image.inode(0, (2, 0o040755), 0, 0);
        image
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// A compact inode of this layout and mode.
    fn inode(&mut self, nid: usize, (layout, mode): (u16, u16), size: u32, own: u32) {
        let at = INODES + nid * 32;
        self.put(at, &(layout << 1).to_le_bytes());
        self.put(at + 4, &mode.to_le_bytes());
        self.put(at + 6, &[1]);
        self.put(at + 8, &size.to_le_bytes());
        self.put(at + 16, &own.to_le_bytes());
    }

    /// A block of a directory; gives its length.
    fn names(&mut self, at: usize, names: &[(&str, u64)]) -> u32 {
        let mut place = names.len() * 12;
        for (i, (name, nid)) in names.iter().enumerate() {
            self.put(at + i * 12, &nid.to_le_bytes());
            self.put(at + i * 12 + 8, &(place as u16).to_le_bytes());
            self.put(at + i * 12 + 10, &[1]);
            self.put(at + place, name.as_bytes());
            place += name.len();
        }
        place as u32
    }

    fn sb(&self) -> Super {
        Super::read(self).unwrap()
    }

    fn list(&self, nid: u64) -> Result<Vec<String>> {
        let (sb, mut all) = (self.sb(), Vec::new());
        sb.list(self, &sb.inode(self, nid)?, 0, &mut |_, entry| {
            all.push(String::from_utf8(entry.name).unwrap());
            true
        })?;
        Ok(all)
    }

    fn data(&self, nid: u64) -> Result<Vec<u8>> {
        let sb = self.sb();
        let mut buf = vec![1; 4096];
        let n = sb.read_data(self, &sb.inode(self, nid)?, &mut buf, 0)?;
        buf.truncate(n);
        Ok(buf)
    }
}

#[test]
fn super_blocks() {
    let error = |at: usize, byte: u8| {
        let mut image = Image::new();
        image.0[at] = byte;
        Super::read(&image).map(drop)
    };
    assert_eq!(error(0, 1), Ok(()));
    assert_eq!(error(1024, 0), Err(Errno::EINVAL));
    for bits in [0, 8, 13, 255] {
        assert_eq!(error(1024 + 12, bits), Err(Errno::EINVAL));
    }
    assert_eq!(error(1024 + 80, 8), Err(Errno::EINVAL));
    assert_eq!(error(1024 + 8, 1), Err(Errno::EBADMSG));
    assert_eq!(Super::read(&Image(vec![0; 1100])).map(drop), Err(Errno::EIO));
}

#[test]
fn names_are_found_over_blocks() {
    let mut image = Image::new();
    let at = 4096;
    image.names(at, &[(".", 0), ("..", 0), ("b", 7), ("d", 8)]);
    image.names(at + 512, &[("f", 9), ("h", 10)]);
    image.inode(1, (0, 0o040755), 1024, (at / 512) as u32);
    let sb = image.sb();
    let dir = sb.inode(&image, 1).unwrap();
    let find = |name: &str| sb.find(&image, &dir, name.as_bytes());
    assert_eq!((find("b"), find("d"), find("f"), find("h")), (Ok(7), Ok(8), Ok(9), Ok(10)));
    for name in ["a", "c", "e", "g", "i", "bb"] {
        assert_eq!(find(name), Err(Errno::ENOENT));
    }
    assert_eq!(image.list(1).unwrap(), ["b", "d", "f", "h"]);
    assert_eq!(image.list(0).unwrap(), [""; 0]);
}

#[test]
fn names_that_cannot_be() {
    for (name, nameoff) in [("a/b", 12u16), ("", 12), ("a", 0), ("a", 13), ("a", 600), ("a", 6)] {
        let mut image = Image::new();
        let len = image.names(4096, &[(name, 7)]).max(13);
        image.put(4096 + 8, &nameoff.to_le_bytes());
        image.inode(1, (0, 0o040755), len, 8);
        assert_eq!(image.list(1), Err(Errno::EUCLEAN), "{name} {nameoff}");
    }
    // A long directory with blocks of nothing but dots does not go on for ever.
    let mut image = Image::new();
    image.names(4096, &[(".", 0), ("..", 0)]);
    image.names(4608, &[(".", 0), ("..", 0)]);
    image.inode(1, (0, 0o040755), 2048, 8);
    assert_eq!(image.list(1), Err(Errno::EUCLEAN));
}

#[test]
fn layouts() {
    let mut image = Image::new();
    image.put(4096, &[b'x'; 1024]);
    image.inode(1, (0, 0o100644), 600, 8);
    assert_eq!(image.data(1).unwrap(), [b'x'; 600]);
    image.inode(1, (0, 0o100644), 600, u32::MAX);
    assert_eq!(image.data(1).unwrap(), [0; 600]);
    // A tail behind the inode, and one that would leave the block.
    image.inode(2, (2, 0o100644), 517, 8);
    image.put(INODES + 3 * 32, b"tails");
    assert_eq!(image.data(2).unwrap(), [&[b'x'; 512][..], b"tails"].concat());
    image.inode(14, (2, 0o100644), 100, 8);
    assert_eq!(image.data(14), Err(Errno::EUCLEAN));
    // Chunks: one at block 8, a hole.
    image.inode(4, (4, 0o100644), 700, 0);
    image.put(INODES + 5 * 32, &[8, 0, 0, 0, 255, 255, 255, 255]);
    assert_eq!(image.data(4).unwrap(), [&[b'x'; 512][..], &[0; 188]].concat());
    image.inode(4, (4, 0o100644), 700, 0x80);
    assert_eq!(image.data(4), Err(Errno::EOPNOTSUPP));
    // Behind the end, compressed, of no type, nowhere.
    image.inode(1, (0, 0o100644), 600, 1000);
    assert_eq!(image.data(1), Err(Errno::EIO));
    image.inode(1, (3, 0o100644), 600, 0);
    assert_eq!(image.data(1), Err(Errno::EOPNOTSUPP));
    image.inode(1, (0, 0o170644), 600, 0);
    assert_eq!(image.data(1), Err(Errno::EUCLEAN));
    assert_eq!(image.data(u64::MAX), Err(Errno::EUCLEAN));
    assert_eq!(image.data(1 << 40), Err(Errno::EIO));
}
