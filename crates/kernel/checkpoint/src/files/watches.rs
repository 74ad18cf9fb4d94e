//! Watches of inotify(7) and marks of fanotify(7), to plain data and back.

use super::restore::FileRestorer;
use super::save::{CheckedFiles, FileSaver};
use super::state::{FileEventState, Kind, MarkState, WatchState};
use abi::{Errno, Result};
use ipc::fanotify::{EventAt, Fanotify, MarkedPlace};
use ipc::inotify::Inotify;
use ipc::known_place::Known;
use std::sync::Arc;
use vfs::file::PlaceState;
use vfs::notify::marks::Marked;
use vfs::{InodeRef, Mount, OpenFile, Path, SuperBlock};

/// The name of an object is not known any more.
const NAMELESS: &str = "watches a file, and its name is not known any more";

impl FileSaver<'_> {
    /// An instance of inotify(7).
    pub(super) fn watches(&mut self, inotify: &Inotify, holder: &str) -> std::result::Result<Kind, String> {
        let (state, watched) = inotify.state();
        let mut watches = Vec::new();
        for one in watched {
            let path = self.known(one.place, &one.inode).ok_or(NAMELESS)?;
            let place = self.watched_place(&path, holder);
            watches.push(WatchState { id: one.id, mask: one.mask, place });
        }
        Ok(Kind::Inotify(state, watches))
    }

    /// A group of fanotify(7).
    pub(super) fn marks(
        &mut self,
        group: &Fanotify,
        holder: &str,
        checked: &mut CheckedFiles,
    ) -> std::result::Result<Kind, String> {
        let (state, marked, waiting) = group.state().ok_or("a group of fanotify without processes")?;
        let (mut marks, mut events) = (Vec::new(), Vec::new());
        for MarkedPlace { on, place, wanted } in marked {
            let root = |mount: Arc<Mount>| Path { dentry: mount.root.clone(), mount };
            let path = match &on {
                Marked::Inode(inode) => self.known(place, inode),
                Marked::Mount(mount) => mount.upgrade().map(root),
                Marked::FileSystem(sb) => sb.upgrade().and_then(|sb| self.mount_of(&sb)).map(root),
            };
            let place = self.watched_place(&path.ok_or(NAMELESS)?, holder);
            marks.push(MarkState { kind: on.key().0, place, wanted });
        }
        marks.sort_by(|a, b| (a.kind, &a.place.path).cmp(&(b.kind, &b.place.path)));
        for EventAt { path, mask, by } in waiting {
            let place = self.watched_place(&path, holder);
            events.push(FileEventState { place, mask, by: by.nr() });
            checked.remembered.push(by);
        }
        Ok(Kind::Fanotify(state, marks, events))
    }

    fn watched_place(&mut self, path: &Path, holder: &str) -> PlaceState {
        self.place(path, &|| format!("{holder} watches a file, which"))
    }

    /// The place of an object, by what is known of it.
    fn known(&self, known: Known, inode: &InodeRef) -> Option<Path> {
        let path = match known {
            Known::Place(path) => path,
            Known::Name(mount, names) => super::find(self.cx, &mount, &names).ok()?,
            Known::Gone => return None,
        };
        let number = |inode: &InodeRef| inode.attr().ok().map(|attr| (attr.dev, attr.ino));
        (number(path.inode()) == number(inode)).then_some(path)
    }

    fn mount_of(&self, sb: &Arc<SuperBlock>) -> Option<Arc<Mount>> {
        let mounts = self.views.iter().flat_map(|(_, fs)| fs.view().ns.root.read().clone().tree());
        mounts.into_iter().find(|mount| Arc::ptr_eq(&mount.sb, sb))
    }
}

impl FileRestorer<'_> {
    /// Watches and marks of a restored file.
    pub(super) fn watch(&self, kind: &Kind, file: &OpenFile) -> Result<()> {
        match kind {
            Kind::Inotify(_, watches) => {
                let inotify = Inotify::of(file).ok_or(Errno::EINVAL)?;
                for one in watches {
                    inotify.restore_watch(one.id, &self.path(&one.place)?, one.mask)?;
                }
            }
            Kind::Fanotify(_, marks, events) => {
                let group = Fanotify::of(file).ok_or(Errno::EINVAL)?;
                for one in marks {
                    let path = self.path(&one.place)?;
                    let on = match one.kind {
                        0 => Marked::Inode(path.inode().clone()),
                        1 => Marked::Mount(Arc::downgrade(&path.mount)),
                        2 => Marked::FileSystem(Arc::downgrade(&path.mount.sb)),
                        _ => return Err(Errno::EINVAL),
                    };
                    group.add(on, &path, |wanted| {
                        *wanted = one.wanted;
                        Ok(())
                    })?;
                }
                for one in events {
                    let (path, by) = (self.path(&one.place)?, self.process(one.by).ok_or(Errno::EINVAL)?);
                    group.restore_event(EventAt { path, mask: one.mask, by })?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
