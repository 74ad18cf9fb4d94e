//! syscalls.
