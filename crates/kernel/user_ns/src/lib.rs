//! User namespaces, which own capabilities. See user_namespaces(7).
//!
//! A capability is held in one namespace: that of the credentials. It counts in this namespace and in those inside of
//! it. Every other namespace (network, PID, UTS, IPC, mount) belongs to a user namespace. Capabilities in that user
//! namespace decide about changes.
//!
//! The kernel's own IDs of users and groups are those of the initial namespace (Linux's `kuid_t`). A number becomes one where it
//! comes in ([`UserNamespace::user`], [`UserNamespace::group`]), and a number again where it goes out
//! ([`UserNamespace::show_user`], [`UserNamespace::show_group`]).
//!
//! Locks are leaves. A checkpoint keeps number, owner, parent, maps and limits of each.

#![forbid(unsafe_code)]

mod counts;
mod id_map;
mod state;

pub use counts::{Kind, NO_LIMIT, NamespaceCount};
pub use id_map::{Extent, IdMap, OVERFLOW};
pub use state::UserNamespaceState;

use abi::{Errno, Result};
use counts::Counts;
use lock_order::Mutex;
use std::sync::{Arc, OnceLock};

/// Number of the initial namespace's nsfs inode (PROC_USER_INIT_INO).
pub const INITIAL: u64 = 4026531837;
/// The same where the configuration maps IDs: Linux gives it to no initial namespace.
pub const MAPPED: u64 = 4026532099;
/// Most levels below the initial namespace.
pub const MAX_LEVEL: usize = 32;

/// The kinds of IDs that a namespace has a map for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ids {
    /// Users.
    Users,
    /// Groups.
    Groups,
    /// Projects, which no file system of this kernel has.
    Projects,
}

/// The maker of a user namespace.
#[derive(Clone, Copy, Debug)]
pub struct Maker {
    /// Effective user ID, as the initial namespace has it.
    pub user: u32,
    /// Effective group ID, likewise.
    pub group: u32,
    /// Holds CAP_SETFCAP: user 0 of the parent may be mapped by the namespace itself.
    pub setfcap: bool,
}

/// A user namespace.
#[derive(Debug)]
pub struct UserNamespace {
    inum: u64,
    level: usize,
    parent: Option<Arc<UserNamespace>>,
    maker: Maker,
    maps: [OnceLock<IdMap>; 3],
    /// Whether setgroups(2) is allowed once there is a map of groups. Held while a map is set.
    setgroups: Mutex<bool>,
    counts: Counts,
    _counted: Option<NamespaceCount>,
}

impl UserNamespace {
    /// The initial one of a kernel, which user 0 owns.
    pub fn initial() -> Arc<UserNamespace> {
        UserNamespace::initial_with(INITIAL)
    }

    /// The initial one of a kernel with maps of IDs in its configuration, so that it is not the machine's for programs.
    pub fn initial_mapped() -> Arc<UserNamespace> {
        UserNamespace::initial_with(MAPPED)
    }

    fn initial_with(inum: u64) -> Arc<UserNamespace> {
        Arc::new(UserNamespace {
            inum,
            level: 0,
            parent: None,
            maker: Maker { user: 0, group: 0, setfcap: true },
            maps: std::array::from_fn(|_| OnceLock::from(IdMap::all())),
            setgroups: Mutex::new(true),
            counts: Counts::new(Kind::bound),
            _counted: None,
        })
    }

    /// A namespace inside this one. ENOSPC when that is too deep or one too many, EPERM when its maker has no IDs here.
    pub fn child(self: &Arc<Self>, inum: u64, maker: Maker) -> Result<Arc<UserNamespace>> {
        if self.level > MAX_LEVEL {
            return Err(Errno::ENOSPC);
        }
        let counted = NamespaceCount::new(self, maker.user, Kind::User)?;
        if self.user_here(maker.user).is_none() || self.group_here(maker.group).is_none() {
            return Err(Errno::EPERM);
        }
        Ok(Arc::new(UserNamespace {
            inum,
            level: self.level + 1,
            parent: Some(self.clone()),
            maker,
            maps: Default::default(),
            setgroups: Mutex::new(*self.setgroups.lock()),
            counts: Counts::new(|_| NO_LIMIT),
            _counted: Some(counted),
        }))
    }

    /// Number of its nsfs inode, as /proc/PID/ns/user shows it.
    pub fn inum(&self) -> u64 {
        self.inum
    }

    /// True for the kernel's initial namespace.
    pub fn is_initial(&self) -> bool {
        self.level == 0
    }

    /// The namespace that it is inside of.
    pub fn parent(&self) -> Option<&Arc<UserNamespace>> {
        self.parent.as_ref()
    }

    /// The effective user ID of its maker, as the initial namespace has it.
    pub fn owner(&self) -> u32 {
        self.maker.user
    }

    /// Whether it is `outer` or inside of that.
    pub fn is_within(&self, outer: &UserNamespace) -> bool {
        let mut at = Some(self);
        while let Some(ns) = at.filter(|ns| ns.level >= outer.level) {
            if std::ptr::eq(ns, outer) {
                return true;
            }
            at = ns.parent.as_deref();
        }
        false
    }

    /// Whether a task of namespace `from` with effective user ID `euid` has the capabilities here that `held` says it
    /// has in `from`: as they are here and inside of `from`, and all of them in a namespace that the task's user made.
    pub fn grants(&self, from: &UserNamespace, euid: u32, held: bool) -> bool {
        let mut at = self;
        loop {
            if std::ptr::eq(at, from) {
                return held;
            }
            if at.level <= from.level {
                return false;
            }
            let Some(parent) = at.parent.as_deref() else { return false };
            if std::ptr::eq(parent, from) && at.maker.user == euid {
                return true;
            }
            at = parent;
        }
    }

    /// A map; none as long as it is not set.
    pub fn map(&self, ids: Ids) -> Option<&IdMap> {
        self.maps[ids as usize].get()
    }

    fn down(&self, ids: Ids, id: u32) -> Option<u32> {
        if id == u32::MAX || self.is_initial() {
            return Some(id).filter(|id| *id != u32::MAX);
        }
        self.map(ids)?.down(id)
    }

    fn up(&self, ids: Ids, id: u32) -> Option<u32> {
        if id == u32::MAX || self.is_initial() {
            return Some(id).filter(|id| *id != u32::MAX);
        }
        self.map(ids)?.up(id)
    }

    /// The kernel's ID of a user of this namespace (make_kuid); none for one that it does not have, and for -1.
    pub fn user(&self, number: u32) -> Option<u32> {
        self.down(Ids::Users, number)
    }

    /// The same for a group.
    pub fn group(&self, number: u32) -> Option<u32> {
        self.down(Ids::Groups, number)
    }

    /// What a user is called here (from_kuid), if at all.
    pub fn user_here(&self, user: u32) -> Option<u32> {
        self.up(Ids::Users, user)
    }

    /// What a group is called here, if at all.
    pub fn group_here(&self, group: u32) -> Option<u32> {
        self.up(Ids::Groups, group)
    }

    /// The number that a user is shown as (from_kuid_munged).
    pub fn show_user(&self, user: u32) -> u32 {
        if self.is_initial() { user } else { self.user_here(user).unwrap_or(OVERFLOW) }
    }

    /// The number that a group is shown as.
    pub fn show_group(&self, group: u32) -> u32 {
        if self.is_initial() { group } else { self.group_here(group).unwrap_or(OVERFLOW) }
    }

    /// Whether user 0 here is this one.
    pub fn is_root(&self, user: u32) -> bool {
        self.user_here(user) == Some(0)
    }

    /// Whether the maker could have had user 0 of the parent in the map.
    pub fn maker_had_setfcap(&self) -> bool {
        self.maker.setfcap
    }

    /// Sets a map, once and for all, if `permitted` says so. EPERM when there is one, and for IDs that the parent does not have.
    pub fn set_map(
        &self,
        ids: Ids,
        map: impl FnOnce() -> Result<IdMap>,
        permitted: impl FnOnce(&IdMap, bool) -> bool,
    ) -> Result<()> {
        let setgroups = self.setgroups.lock();
        let (Some(parent), None) = (&self.parent, self.map(ids)) else { return Err(Errno::EPERM) };
        let map = map()?;
        if !permitted(&map, *setgroups) {
            return Err(Errno::EPERM);
        }
        let map = map.below(parent.map(ids).ok_or(Errno::EPERM)?)?;
        let _ = self.maps[ids as usize].set(map);
        Ok(())
    }

    /// What /proc/PID/setgroups says.
    pub fn setgroups_allowed(&self) -> bool {
        *self.setgroups.lock()
    }

    /// Whether setgroups(2) may be called at all: it is allowed, and there is a map of groups.
    pub fn may_setgroups(&self) -> bool {
        self.setgroups_allowed() && self.map(Ids::Groups).is_some()
    }

    /// Writing /proc/PID/setgroups. EPERM for an attempt to allow what is denied, and to deny once there is a map of groups.
    pub fn set_setgroups(&self, allow: bool) -> Result<()> {
        let mut setgroups = self.setgroups.lock();
        if allow != *setgroups && (allow || self.map(Ids::Groups).is_some())
            || !allow && self.map(Ids::Groups).is_some()
        {
            return Err(Errno::EPERM);
        }
        *setgroups = allow;
        Ok(())
    }
}

impl PartialEq for UserNamespace {
    fn eq(&self, other: &UserNamespace) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for UserNamespace {}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(user: u32) -> Maker {
        Maker { user, group: 0, setfcap: false }
    }

    /// With all IDs of its parent.
    fn same_ids(ns: &UserNamespace) {
        for ids in [Ids::Users, Ids::Groups] {
            ns.set_map(ids, || IdMap::parse(b"0 0 4294967295"), |_, _| true).unwrap();
        }
    }

    #[test]
    fn capabilities_count_in_their_namespace_and_inside_it() {
        let top = UserNamespace::initial();
        let (a, b) = (top.child(1, by(1000)).unwrap(), top.child(2, by(1000)).unwrap());
        same_ids(&a);
        let inner = a.child(3, by(0)).unwrap();
        for ns in [&top, &a, &inner] {
            assert!(ns.grants(&top, 1, true));
            assert!(!ns.grants(&top, 1, false));
        }
        assert!(a.grants(&a, 7, true) && inner.grants(&a, 7, true));
        // Neither outwards nor to a neighbour.
        assert!(!top.grants(&a, 0, true) && !b.grants(&a, 0, true) && !a.grants(&inner, 0, true));
    }

    #[test]
    fn who_made_a_namespace_has_all_in_it_and_inside() {
        let top = UserNamespace::initial();
        let mine = top.child(1, by(1000)).unwrap();
        same_ids(&mine);
        let inner = mine.child(2, by(7)).unwrap();
        assert!(mine.grants(&top, 1000, false) && inner.grants(&top, 1000, false));
        assert!(!mine.grants(&top, 7, false) && !inner.grants(&top, 7, false));
        // The user ID counts in the parent of the namespace only.
        assert!(!mine.grants(&mine, 1000, false) && inner.grants(&mine, 7, false));
    }

    #[test]
    fn depth_is_bounded() {
        let mut deepest = UserNamespace::initial();
        for _ in 0..=MAX_LEVEL {
            deepest = deepest.child(9, by(0)).unwrap();
            same_ids(&deepest);
        }
        assert_eq!(deepest.child(9, by(0)).err(), Some(Errno::ENOSPC));
    }

    #[test]
    fn maps_are_set_once_and_groups_stay_denied() {
        let top = UserNamespace::initial();
        let ns = top.child(1, by(1000)).unwrap();
        assert_eq!((ns.show_user(1000), ns.user(0), ns.may_setgroups()), (OVERFLOW, None, false));
        let map = || IdMap::parse(b"0 1000 1");
        assert_eq!(ns.set_map(Ids::Users, map, |_, _| false), Err(Errno::EPERM));
        ns.set_map(Ids::Users, map, |_, setgroups| setgroups).unwrap();
        assert_eq!(ns.set_map(Ids::Users, map, |_, _| true), Err(Errno::EPERM));
        assert_eq!((ns.show_user(1000), ns.user(0), ns.user(1)), (0, Some(1000), None));
        assert!(ns.is_root(1000) && !ns.is_root(0) && !ns.may_setgroups());
        // A maker without IDs makes none inside.
        assert_eq!(ns.child(2, by(5)).err(), Some(Errno::EPERM));
        ns.set_setgroups(false).unwrap();
        assert_eq!(ns.set_setgroups(true), Err(Errno::EPERM));
        ns.set_map(Ids::Groups, map, |_, setgroups| !setgroups).unwrap();
        assert_eq!(ns.set_setgroups(false), Err(Errno::EPERM));
        assert!(!ns.may_setgroups() && ns.is_within(&top) && !top.is_within(&ns));
    }

    #[test]
    fn namespaces_are_counted_at_every_level() {
        let top = UserNamespace::initial();
        let ns = top.child(1, by(1000)).unwrap();
        top.set_limit(Kind::Uts, 2);
        let held: Vec<_> = (0..2).map(|_| NamespaceCount::new(&ns, 7, Kind::Uts).unwrap()).collect();
        // They count for the owner of the namespace only.
        assert_eq!(NamespaceCount::new(&ns, 8, Kind::Uts).err(), Some(Errno::ENOSPC));
        assert_eq!(NamespaceCount::new(&top, 1000, Kind::Uts).err(), Some(Errno::ENOSPC));
        assert!(NamespaceCount::new(&top, 1001, Kind::Uts).is_ok());
        drop(held);
        ns.set_limit(Kind::Uts, 0);
        assert_eq!(NamespaceCount::new(&ns, 7, Kind::Uts).err(), Some(Errno::ENOSPC));
        assert!(NamespaceCount::new(&top, 1000, Kind::Uts).is_ok());
        // All users together have a bound.
        let all: Vec<_> =
            (0..Kind::Net.bound()).map(|i| NamespaceCount::new(&top, i as u32, Kind::Net).unwrap()).collect();
        assert_eq!(NamespaceCount::new(&top, 0xffff, Kind::Net).err(), Some(Errno::ENOSPC));
        drop(all);
        assert!(NamespaceCount::new(&top, 0xffff, Kind::Net).is_ok());
    }
}
