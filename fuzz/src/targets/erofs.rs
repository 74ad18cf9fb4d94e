//! Images of EROFS: a program looks at everything that it finds.

use super::outcome;
use erofs::image::{Source, Super};

pub(super) const WORDS: &[&str] = &["\u{2}\0", "\u{4}\0", "\u{5}\0", "\u{8}\0", "..", "\0\u{10}\0\0"];

/// Inodes that are looked at.
const INODES: usize = 48;
/// Entries of a directory that are.
const ENTRIES: usize = 64;

struct Image<'a>(&'a [u8]);

impl Source for Image<'_> {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> abi::Result<()> {
        let from = usize::try_from(at).ok().and_then(|at| self.0.get(at..)).ok_or(abi::Errno::EIO)?;
        buf.copy_from_slice(from.get(..buf.len()).ok_or(abi::Errno::EIO)?);
        Ok(())
    }
}

pub(super) fn run(input: &[u8]) -> u64 {
    let image = Image(input);
    let sb = match Super::read(&image) {
        Ok(sb) => sb,
        Err(e) => return outcome(e.raw()),
    };
    let mut todo = vec![sb.root];
    let mut errors = Vec::new();
    let (mut next, mut attributes) = (0, 0);
    while let Some(&nid) = todo.get(next) {
        next += 1;
        let inode = match sb.inode(&image, nid) {
            Ok(inode) => inode,
            Err(e) => {
                errors.push(e.raw());
                continue;
            }
        };
        let mut buf = [0; 8192];
        for off in [0, inode.size / 2, inode.size.saturating_sub(5000)] {
            match sb.read_data(&image, &inode, &mut buf, off) {
                Ok(n) => assert!(n as u64 <= inode.size.saturating_sub(off)),
                Err(e) => errors.push(e.raw()),
            }
        }
        let text = sb.link(&image, &inode);
        assert!(text.is_ok_and(|text| text.len() < 4096 && !text.contains(&0)) || !errors.is_empty());
        let walked = sb.xattrs(&image, &inode, &mut |name, value| {
            assert!(name.contains(&b'.') && name.len() < 300 && value.len() <= 0xffff);
            attributes += 1;
            true
        });
        errors.extend(walked.err().map(|e| e.raw()));
        if inode.mode & 0o170000 != 0o040000 {
            continue;
        }
        let (mut at, mut entries) = (0, Vec::new());
        let listed = sb.list(&image, &inode, 0, &mut |position, entry| {
            assert!(position > at && (1..=255).contains(&entry.name.len()));
            assert!(!entry.name.contains(&b'/') && !entry.name.contains(&0));
            at = position;
            entries.push(entry);
            entries.len() < ENTRIES
        });
        errors.extend(listed.err().map(|e| e.raw()));
        for entry in entries {
            errors.extend(sb.find(&image, &inode, &entry.name).err().map(|e| e.raw()));
            if todo.len() < INODES && !todo.contains(&entry.nid) {
                todo.push(entry.nid);
            }
        }
    }
    errors.sort_unstable();
    errors.dedup();
    outcome((next.min(8), attributes.min(8), errors))
}
