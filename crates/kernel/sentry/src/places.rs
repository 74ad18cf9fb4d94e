//! Places in the container's root that its configuration names: for mounts, for devices, for the working directory.
//!
//! Links on the way are followed within the root, also dangling ones; what is missing at their end is made.

use abi::Errno;
use mounts::FsView;
use namei::{Lookup, Start, dir, walk};
use vfs::{Caller, Internal, NewNode, Path};

/// Most links on the way, as Linux has it.
const MAX_LINKS: usize = 40;

/// Finds a directory, or with `is_dir` false any file, making what is missing.
pub(crate) fn find_or_make(cx: &Internal, view: &FsView, path: &str, is_dir: bool) -> Result<Path, Errno> {
    let find = |path: &[u8]| walk::lookup(cx, view, &Start::Cwd, path, Lookup::FOLLOW);
    match find(path.as_bytes()) {
        Err(Errno::ENOENT) => {}
        found => return found,
    }
    let path = resolve(cx, view, path.as_bytes())?;
    if is_dir {
        mkdir_all(cx, view, &path)?;
    } else {
        if let Some(slash) = path.iter().rposition(|c| *c == b'/') {
            mkdir_all(cx, view, &path[..slash])?;
        }
        dir::mknod(cx, view, &Start::Cwd, &path, &NewNode::Regular, 0o644)?;
    }
    find(&path)
}

/// The path without links. What is missing has no links; `..` there means the part before it.
fn resolve(cx: &Internal, view: &FsView, path: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut pending: Vec<Vec<u8>> = parts(path).rev().collect();
    let mut done: Vec<Vec<u8>> = Vec::new();
    let mut links = 0;
    while let Some(part) = pending.pop() {
        if part == b".." {
            done.pop();
            continue;
        }
        done.push(part);
        match walk::lookup(cx, view, &Start::Cwd, &joined(&done), Lookup::empty()) {
            Ok(at) if at.kind() == libc::S_IFLNK => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::ELOOP);
                }
                let target = at.inode().readlink(cx)?;
                done.pop();
                if target.starts_with(b"/") {
                    done.clear();
                }
                pending.extend(parts(&target).rev());
            }
            Ok(_) | Err(Errno::ENOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(joined(&done))
}

fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> {
    path.split(|c| *c == b'/').filter(|part| !part.is_empty() && *part != b".").map(<[u8]>::to_vec)
}

fn joined(parts: &[Vec<u8>]) -> Vec<u8> {
    [b"/", parts.join(&b'/').as_slice()].concat()
}

/// mkdir -p with mode 755.
fn mkdir_all(cx: &dyn Caller, view: &FsView, path: &[u8]) -> Result<(), Errno> {
    let mut at = Vec::new();
    for part in parts(path) {
        at.push(b'/');
        at.extend(part);
        match dir::mkdir(cx, view, &Start::Cwd, &at, 0o755) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
