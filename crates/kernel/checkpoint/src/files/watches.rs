//! Watches of inotify(7), marks of fanotify(7), and the files of Landlock rules, to plain data and back.

use super::restore::FileRestorer;
use super::save::{CheckedFiles, FileSaver};
use super::state::{FileEventState, Kind, LandlockState, MarkState, WatchState};
use abi::{Errno, Result};
use ipc::fanotify::{EventAt, Fanotify, MarkedPlace};
use ipc::inotify::Inotify;
use landlock::{LandlockRestorer, Pool};
use namei::RuleObject;
use std::sync::Arc;
use vfs::file::PlaceState;
use vfs::notify::marks::Marked;
use vfs::{InodeRef, Known, Mount, OpenFile, Path, SuperBlock};

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

    /// The files that Landlock rules name.
    pub(super) fn rules(&mut self, checked: &mut CheckedFiles) {
        for object in self.landlock.objects().to_vec() {
            let rule = RuleObject::of(&object);
            let path = rule.and_then(|rule| self.known(rule.place.now(), &rule.inode));
            match path {
                Some(path) => {
                    let place = self.place(&path, &|| "the file of a Landlock rule".into());
                    checked.landlock.objects.push(place);
                }
                None => self.refuse("a Landlock rule for a file, and its name is not known any more".into()),
            }
        }
        checked.landlock.layers = self.landlock.layers().to_vec();
    }

    fn watched_place(&mut self, path: &Path, holder: &str) -> PlaceState {
        self.place(path, &|| format!("{holder} watches a file, which"))
    }

    /// The place of an object, by what is known of it.
    pub(super) fn known(&self, known: Known, inode: &InodeRef) -> Option<Path> {
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
    /// The layers of Landlock rules.
    pub(super) fn layers(&self, saved: &LandlockState, pool: &Arc<Pool>) -> Result<LandlockRestorer> {
        let object = |place: &PlaceState| namei::rule_object(&self.path(place)?);
        let objects = saved.objects.iter().map(object).collect::<Result<Vec<_>>>()?;
        LandlockRestorer::new(pool, &saved.layers, &objects)
    }

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
