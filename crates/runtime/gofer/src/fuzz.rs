//! Entrances for `fuzz/`: a connection for files against a sentry that sends arbitrary messages.

use crate::files::{Connection, Options};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The connection of one tree.
pub struct Files(Arc<Connection>);

impl Files {
    /// For the tree with this root, an O_PATH descriptor.
    pub fn new(root: OwnedFd, fifos: bool, readonly: bool) -> Files {
        Files(Arc::new(Connection::new(root, Options { fifos, readonly }, None)))
    }

    /// The reply to a request, and the descriptors that go along with it; `None` ends the connection.
    pub fn answer(&self, request: &[u8], descriptor: Option<OwnedFd>) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
        self.0.answer(request, descriptor)
    }
}
