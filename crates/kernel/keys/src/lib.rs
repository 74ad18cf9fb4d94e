//! Keys and keyrings, see keyrings(7): what add_key(2), request_key(2) and keyctl(2) work on.
//!
//! [`Keys`] belongs to a kernel and holds every key, by serial number. A key lives as long as a keyring has a link to it or
//! a thread's [`Holder`] names it. One lock, a leaf, guards all of it: every operation looks at a bounded number of links.
//! The types are `user`, `logon`, `big_key` and `keyring`. There is no upcall: a key that is asked for and not there is
//! negated, as on a host without request-key(8).
//!
//! Users are told apart by user namespace and user ID; a key is the user's, the group's or anybody's only for credentials
//! of the namespace that it was made in. A checkpoint keeps nothing of it yet.

#![forbid(unsafe_code)]

mod control;
mod holder;
mod key;
mod link;
mod lookup;
mod quota;
mod search;
mod show;
mod store;
#[cfg(test)]
mod tests;

pub use holder::Holder;
pub use key::{DESCRIPTION_MAX, Kind, PAYLOAD_MAX, Serial};
pub use quota::Setting;
pub use store::{Keys, Who};
