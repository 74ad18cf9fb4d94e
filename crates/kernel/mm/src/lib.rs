//! Guest address spaces: the record of mappings and the policy of mmap(2) and
//! its relatives. The host kernel pages; this crate decides.
//!
//! [`MemoryMap`] is pure (ranges in, ranges out); [`Mm`] pairs it with the
//! platform's address space and has the calling guest thread execute each
//! change. The record serves validation, address selection, limits and
//! /proc/PID/maps; it is never trusted for safety, because a hostile guest can
//! change its own mappings behind it.
//!
//! Lock ranks: `MM_OPS` is held while a guest thread executes a change (so
//! changes of one address space are serial, as under mmap_lock), `MM_MAP` only
//! while the record is read or written.

#![forbid(unsafe_code)]

mod capture;
mod change_imaged;
mod futex_hash;
mod grow;
mod guards;
mod imaged;
mod locked;
mod map;
mod mbind;
mod mmap;
mod ops;
mod policy;
mod remap;
mod restore;
mod rewrite;
mod seal;
mod spaces;
mod state;
mod traced;
mod twin_map;
mod undo;
mod users;

pub use capture::{Presence, Saver};
pub use futex_hash::FutexHash;
pub use guards::{MADV_GUARD_INSTALL, MADV_GUARD_REMOVE};
pub use locked::LockAll;
pub use map::{
    DONT_DUMP, DONT_FORK, MemoryMap, RING, SEALED, TOUCHED, TRAMPOLINES, Vma, VmaKind, WIPE_ON_FORK,
};
pub use ops::{ImageInfo, MapArgs, Mm};
pub use policy::{Mode, Policy};
pub use restore::Restorer;
pub use spaces::AddressSpaces;
pub use state::{AreaState, ImageState, KeptState, MemoryState, SharedState};
pub use users::{RemainingUsers, Users};
