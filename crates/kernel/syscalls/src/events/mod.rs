//! Waiting for files, and being told of changes: poll, epoll, inotify, fanotify, asynchronous I/O.

pub(crate) mod aio;
pub(crate) mod epoll;
pub(crate) mod eventfd;
pub(crate) mod fanotify;
pub(crate) mod inotify;
pub(crate) mod poll;
pub(crate) mod select;
