//! Locks and leases on open files: record locks and flock(2) ([`records`]), leases ([`leases`]).
//!
//! They are attachments of the inode. Locks on files that programs outside this kernel can lock are taken on the host
//! as well. Neighbours: `vfs` below; `files` releases a process's record locks when it closes a descriptor, `namei`
//! breaks leases when it opens. A checkpoint keeps [`records::LocksState`] and [`leases::LeaseState`].

#![forbid(unsafe_code)]

mod helper;
mod host;
pub mod leases;
pub mod records;
