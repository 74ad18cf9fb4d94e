//! What a program may do: keys, Landlock, seccomp.

pub(crate) mod keyctl;
pub(crate) mod landlock;
pub(crate) mod lsm;
pub(crate) mod seccomp;
