//! The credentials that opened a file (Linux's `f_cred`), as far as they matter later. Whole credentials are not kept: their groups
//! alone may be a quarter of a mebibyte.

use crate::file::OpenFile;
use rights::cred::{Cap, Credentials};
use std::sync::Arc;
use user_ns::UserNamespace;

/// Credentials that opened a file.
#[derive(Default)]
pub struct Opener {
    serial: u64,
    /// `None`: the initial one.
    user_ns: Option<Arc<UserNamespace>>,
}

impl Opener {
    /// Of these credentials.
    pub fn of(creds: &Credentials) -> Opener {
        let inner = !creds.user_ns.is_initial();
        Opener { serial: creds.serial, user_ns: inner.then(|| creds.user_ns.clone()) }
    }
}

impl OpenFile {
    /// Whether these are the credentials that opened the file. Like on Linux, those of another process and those that
    /// have changed since are others.
    pub fn was_opened_by(&self, creds: &Credentials) -> bool {
        self.opener.serial != 0 && self.opener.serial == creds.serial
    }

    /// True when the capability is effective in the user namespace of the opener of the file.
    pub fn opener_capable(&self, creds: &Credentials, cap: Cap) -> bool {
        match &self.opener.user_ns {
            None => creds.capable(cap),
            Some(ns) => creds.ns_capable(ns, cap),
        }
    }
}
