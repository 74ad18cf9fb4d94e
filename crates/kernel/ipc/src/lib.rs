//! Pipes, event and timer descriptors, and readiness (poll, select, epoll).
//!
//! Neighbours: files implement `vfs::FileOps`; the calling task is seen through
//! `vfs::Caller`; readiness goes through `wait::WaitQueue`. System calls live in
//! `syscalls` and only decode their arguments.

#![forbid(unsafe_code)]

pub mod aio;
pub mod clock;
pub mod epoll;
pub mod eventfd;
pub mod fanotify;
pub mod inotify;
pub mod pipe;
pub mod poll;
pub mod ruleset;
pub mod signalfd;
pub mod timerfd;
