//! Values of options as bytes.

use abi::{Errno, Result};

/// An int as getsockopt(2) gives it.
pub(crate) fn int(value: i32) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

/// The int that setsockopt(2) was given; EINVAL when there is not enough of it.
pub(crate) fn read_int(value: &[u8]) -> Result<i32> {
    value.first_chunk().copied().map(i32::from_ne_bytes).ok_or(Errno::EINVAL)
}
