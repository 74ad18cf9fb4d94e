//! Keys and keyrings, see keyrings(7): the objects of add_key(2), request_key(2) and keyctl(2).
//!
//! [`Keys`] belongs to a kernel and holds every key, by serial number. A key lives as long as a keyring has a link to
//! it or a thread's [`Holder`] names it. One lock, a leaf, guards all of it: every operation looks at a bounded number
//! of links. The types are `user`, `logon`, `big_key` and `keyring`. There is no upcall: a requested key that does not
//! exist is negated, as on a host without request-key(8).
//!
//! A user is a user namespace and a user ID. The permissions of a key for user, group and others apply only to
//! credentials of the namespace that the key was made in. A checkpoint keeps [`KeysState`], and a
//! [`HolderState`] of each thread.

#![forbid(unsafe_code)]

mod charge;
mod control;
mod holder;
mod key;
mod link;
mod lookup;
mod quota;
mod rings;
mod search;
mod show;
mod state;
mod store;
#[cfg(test)]
mod tests;

pub use holder::{Holder, Subject};
pub use key::{DESCRIPTION_MAX, Kind, PAYLOAD_MAX, Serial};
pub use quota::Setting;
pub use state::{HolderState, KeyState, KeysState, PayloadState, UserState};
pub use store::Keys;
