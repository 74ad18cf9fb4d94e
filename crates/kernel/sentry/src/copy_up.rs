//! `tmpcopyup`: a new tmpfs that begins with a copy of the directory that it hides.

use abi::Errno;
use caller::retry::Failure;
use files::io;
use namei::opening::open_path;
use namei::{attr, dir, walk};
use vfs::{DirEntry, DirSink, Internal, NewNode, Path};

/// Most levels of directories.
const MAX_DEPTH: usize = 256;

/// Copies what is in `from`, and `from`'s owner and mode, to `to`. Mounts below `from` are not followed.
pub(crate) fn tree(cx: &Internal, from: &Path, to: &Path) -> Result<(), Errno> {
    copy(cx, from, to, MAX_DEPTH)?;
    owner(cx, from, to)
}

fn copy(cx: &Internal, from: &Path, to: &Path, depth: usize) -> Result<(), Errno> {
    if depth == 0 {
        return Err(Errno::ELOOP);
    }
    for name in names(cx, from)? {
        let source = Path { mount: from.mount.clone(), dentry: walk::find(cx, &from.dentry, &name, false)? };
        let kind = source.attr()?.mode & libc::S_IFMT;
        let node = match kind {
            libc::S_IFDIR => NewNode::Directory,
            libc::S_IFREG => NewNode::Regular,
            libc::S_IFLNK => NewNode::Symlink(source.inode().readlink(cx)?),
            libc::S_IFIFO => NewNode::Fifo,
            // Devices and sockets of the image mean nothing to a copy.
            _ => continue,
        };
        let made = dir::create_in(cx, to, &name, &node, 0o777)?;
        match kind {
            libc::S_IFDIR => copy(cx, &source, &made, depth - 1)?,
            libc::S_IFREG => content(cx, &source, &made)?,
            _ => {}
        }
        owner(cx, &source, &made)?;
    }
    Ok(())
}

fn names(cx: &Internal, at: &Path) -> Result<Vec<Vec<u8>>, Errno> {
    struct Names(Vec<Vec<u8>>);
    impl DirSink for Names {
        fn entry(&mut self, _next: u64, e: &DirEntry) -> bool {
            if e.name != b"." && e.name != b".." {
                self.0.push(e.name.clone());
            }
            true
        }
    }
    let file = open_path(cx, at.clone(), libc::O_RDONLY | libc::O_DIRECTORY).map_err(Failure::errno)?;
    let mut names = Names(Vec::new());
    loop {
        let before = names.0.len();
        dir::read(cx, &file, &mut names)?;
        if names.0.len() == before {
            return Ok(names.0);
        }
    }
}

fn content(cx: &Internal, from: &Path, to: &Path) -> Result<(), Errno> {
    let from = open_path(cx, from.clone(), libc::O_RDONLY).map_err(Failure::errno)?;
    let to = open_path(cx, to.clone(), libc::O_WRONLY).map_err(Failure::errno)?;
    let mut buffer = vec![0; 64 << 10];
    let mut at = 0u64;
    loop {
        let n = io::read_at(cx, &from, &mut buffer, at)?;
        if n == 0 {
            return Ok(());
        }
        let mut rest = &buffer[..n];
        while !rest.is_empty() {
            let (written, _) = io::write_at(cx, &to, rest, at)?;
            at += written as u64;
            rest = &rest[written..];
        }
    }
}

fn owner(cx: &Internal, from: &Path, to: &Path) -> Result<(), Errno> {
    let a = from.attr()?;
    attr::chown(cx, to, a.uid, a.gid)?;
    if a.mode & libc::S_IFMT != libc::S_IFLNK {
        attr::chmod(cx, to, a.mode & 0o7777)?;
    }
    Ok(())
}
