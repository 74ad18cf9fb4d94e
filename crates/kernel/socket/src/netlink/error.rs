//! Why a request is refused: an error number, and a text for sockets that have set NETLINK_EXT_ACK.

use abi::Errno;

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) errno: Errno,
    /// Linux's text.
    pub(super) text: Option<&'static str>,
}

impl Refusal {
    pub(super) fn with(errno: Errno, text: &'static str) -> Refusal {
        Refusal { errno, text: Some(text) }
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Refusal {
        Refusal { errno, text: None }
    }
}

/// What answers a request.
pub(super) type Result<T> = std::result::Result<T, Refusal>;
