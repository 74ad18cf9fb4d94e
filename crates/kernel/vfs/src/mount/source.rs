//! The sources of mounts, which programs may make up: each is kept once for a mount and all of its copies, and long ones
//! count for a bound of the sandbox.

use abi::{Errno, Result};
use caller::quota::{Account, Charge, Kind};
use std::ops::Deref;
use std::sync::Arc;

/// Bytes that a mount has anyway.
const SHORT: usize = 64;

/// The source of a mount as given to mount(2).
pub struct Source {
    text: Box<[u8]>,
    _charge: Option<Charge>,
}

impl Source {
    /// A source of the kernel's own.
    pub fn new(text: &[u8]) -> Arc<Source> {
        Arc::new(Source { text: text.into(), _charge: None })
    }

    /// A source that a program gives. ENOMEM when all together are too long.
    pub fn charged(user: &Arc<Account>, text: &[u8]) -> Result<Arc<Source>> {
        let charge = match text.len().saturating_sub(SHORT) {
            0 => None,
            more => Some(user.charge(Kind::MountTexts, more as u64).ok_or(Errno::ENOMEM)?),
        };
        Ok(Arc::new(Source { text: text.into(), _charge: charge }))
    }
}

impl Deref for Source {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.text
    }
}
