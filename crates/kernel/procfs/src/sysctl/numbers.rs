//! Values that are numbers: limits, and several in one file.

use super::{INT, Row, SysctlView, bounded, get};
use abi::{Errno, Result};
use caller::quota::Limit;

/// The value of a limit that a text names. The size of a pipe is that of its buffer: whole pages, a power of two.
pub(super) fn limit_value(l: Limit, v: &str) -> Result<u64> {
    let n = bounded(v, 0, i64::MAX)? as u64;
    match l {
        Limit::NrOpen if n < 64 => return Err(Errno::EINVAL),
        Limit::PipeMaxSize => {}
        _ => return Ok(n),
    }
    if n <= 1 << 31 { Ok(n.max(4096).next_power_of_two()) } else { Err(Errno::EINVAL) }
}

/// Sets the first of several numbers; fewer than there are leave the others alone.
pub(super) fn set_numbers(k: &SysctlView, row: &Row, v: &str, many: usize) -> Result<()> {
    let old = get(k, row);
    let mut words: Vec<String> = old.split_whitespace().map(str::to_owned).collect();
    for (i, word) in v.split_whitespace().enumerate() {
        let number = bounded(word, i32::MIN.into(), INT)?;
        *words.get_mut(i).filter(|_| i < many).ok_or(Errno::EINVAL)? = number.to_string();
    }
    k.kernel.sysctls.lock().insert(row.path, words.join("\t"));
    Ok(())
}
