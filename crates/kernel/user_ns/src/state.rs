//! A user namespace as plain data, for a checkpoint.

use crate::id_map::{Extent, IdMap};
use crate::{Ids, Kind, Maker, UserNamespace};
use abi::{Errno, Result};
use std::sync::Arc;

/// A user namespace as plain data. The initial one has none: every kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct UserNamespaceState {
    /// Number of its nsfs inode.
    pub inum: u64,
    /// That of the namespace that it is inside of.
    pub parent: u64,
    /// Effective user and group ID of its maker.
    pub maker: (u32, u32),
    /// The maker held CAP_SETFCAP.
    pub setfcap: bool,
    /// The maps of users, groups and projects, as far as they are set: first ID inside, first ID of the initial namespace, how
    /// many.
    pub maps: [Option<Vec<(u32, u32, u32)>>; 3],
    /// /proc/PID/setgroups.
    pub setgroups: bool,
    /// /proc/sys/user/max_*, in the order of [`Kind::ALL`]. Images of older releases have fewer.
    pub limits: Vec<u64>,
}

/// Its maps by place.
const MAPS: [Ids; 3] = [Ids::Users, Ids::Groups, Ids::Projects];

impl UserNamespace {
    /// As plain data; `None` for the initial one.
    pub fn state(&self) -> Option<UserNamespaceState> {
        let parent = self.parent()?.inum();
        let map = |ids| {
            let extents = self.map(ids)?.extents();
            Some(extents.iter().map(|e| (e.first, e.lower, e.count)).collect())
        };
        Some(UserNamespaceState {
            inum: self.inum,
            parent,
            maker: (self.maker.user, self.maker.group),
            setfcap: self.maker.setfcap,
            maps: MAPS.map(map),
            setgroups: self.setgroups_allowed(),
            limits: Kind::ALL.map(|kind| self.limit(kind)).to_vec(),
        })
    }

    /// Back from plain data, inside this namespace and with the number `inum`. The limits are for [`Self::restore_limits`]. EINVAL for
    /// maps that cannot be; EPERM for IDs that this namespace does not have; ENOSPC when it is one too many.
    pub fn restore(self: &Arc<Self>, saved: &UserNamespaceState, inum: u64) -> Result<Arc<UserNamespace>> {
        let maker = Maker { user: saved.maker.0, group: saved.maker.1, setfcap: saved.setfcap };
        let ns = self.child(inum, maker)?;
        *ns.setgroups.lock() = saved.setgroups;
        for (ids, map) in MAPS.into_iter().zip(&saved.maps) {
            let Some(extents) = map else { continue };
            let extents = extents.iter().map(|&(first, lower, count)| Extent { first, lower, count });
            let map = IdMap::restore(extents.collect()).ok_or(Errno::EINVAL)?;
            // What is mapped is in the parent's map as well.
            let outer = self.map(ids).ok_or(Errno::EPERM)?;
            if !map.lies_within(outer) {
                return Err(Errno::EPERM);
            }
            let _ = ns.maps[ids as usize].set(map);
        }
        Ok(ns)
    }

    /// Sets the limits of plain data, when all namespaces are there.
    pub fn restore_limits(&self, saved: &UserNamespaceState) {
        for (kind, limit) in Kind::ALL.into_iter().zip(saved.limits.iter().copied()) {
            self.set_limit(kind, limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> (Arc<UserNamespace>, Arc<UserNamespace>, Arc<UserNamespace>) {
        let top = UserNamespace::initial();
        let outer = top.child(7, Maker { user: 1000, group: 100, setfcap: true }).unwrap();
        outer.set_map(Ids::Users, || IdMap::parse(b"0 1000 10\n10 5000 10"), |_, _| true).unwrap();
        outer.set_setgroups(false).unwrap();
        outer.set_map(Ids::Groups, || IdMap::parse(b"0 100 1"), |_, _| true).unwrap();
        outer.set_limit(Kind::Net, 3);
        let inner = outer.child(8, Maker { user: 1005, group: 100, setfcap: false }).unwrap();
        inner.set_map(Ids::Users, || IdMap::parse(b"0 5 2"), |_, _| true).unwrap();
        (top, outer, inner)
    }

    #[test]
    fn state_and_back() {
        let (_, outer, inner) = made();
        let saved = [outer.state().unwrap(), inner.state().unwrap()];
        let top = UserNamespace::initial();
        assert_eq!(top.state(), None);
        let again = top.restore(&saved[0], 7).unwrap();
        let below = again.restore(&saved[1], 8).unwrap();
        again.restore_limits(&saved[0]);
        assert_eq!([again.state().unwrap(), below.state().unwrap()], saved);
        assert_eq!((below.user(1), below.show_user(1005), again.limit(Kind::Net)), (Some(1006), 0, 3));
        assert!(!again.may_setgroups() && again.grants(&top, 1000, false));
    }

    #[test]
    fn plain_data_that_cannot_be() {
        let (_, outer, inner) = made();
        let (outer, inner) = (outer.state().unwrap(), inner.state().unwrap());
        let top = UserNamespace::initial();
        let with = |map: &[(u32, u32, u32)]| UserNamespaceState {
            maps: [Some(map.to_vec()), None, None],
            ..outer.clone()
        };
        for bad in [
            &[][..],
            &[(0, 0, 0)],
            &[(0, 0, 2), (1, 5, 1)],
            &[(0, 5, 2), (3, 6, 1)],
            &[(u32::MAX, 0, 1)],
            &[(0, u32::MAX, 1)],
            &[(5, 0, u32::MAX)],
        ] {
            assert_eq!(top.restore(&with(bad), 7).err(), Some(Errno::EINVAL), "{bad:?}");
        }
        assert!(top.restore(&with(&vec![(0, 0, 1); 341]), 7).is_err());
        // A map and a maker beyond the namespace around.
        let again = top.restore(&outer, 7).unwrap();
        let more = UserNamespaceState { maps: [Some(vec![(0, 0, 1)]), None, None], ..inner.clone() };
        assert_eq!(again.restore(&more, 8).err(), Some(Errno::EPERM));
        let two = UserNamespaceState { maps: [Some(vec![(0, 1009, 2)]), None, None], ..inner.clone() };
        assert_eq!(again.restore(&two, 8).err(), Some(Errno::EPERM));
        let foreign = UserNamespaceState { maker: (0, 0), ..inner };
        assert_eq!(again.restore(&foreign, 8).err(), Some(Errno::EPERM));
    }
}
