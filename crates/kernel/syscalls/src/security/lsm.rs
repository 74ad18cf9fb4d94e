//! lsm_list_modules(2), lsm_get_self_attr(2), lsm_set_self_attr(2).

use crate::arg::Ptr;
use abi::{Errno, PAGE_SIZE};
use task::{Current, SysResult};

/// What there is: capabilities and Landlock.
const MODULES: [u64; 2] = [100, 110];
/// Bytes of `struct lsm_ctx` without the text.
const CONTEXT: u32 = 32;

pub fn lsm_list_modules(c: &mut Current, ids: Ptr, size: Ptr, flags: u32) -> SysResult {
    if flags != 0 {
        return Err(Errno::EINVAL.into());
    }
    let room: u32 = c.read_value(size.0)?;
    let total = size_of_val(&MODULES) as u32;
    c.write_value(size.0, &total)?;
    if room < total {
        return Err(Errno::E2BIG.into());
    }
    c.write_value(ids.0, &MODULES)?;
    Ok(MODULES.len() as u64)
}

/// No module has attributes of a task.
pub fn lsm_get_self_attr(c: &mut Current, attr: u32, context: Ptr, size: Ptr, flags: u32) -> SysResult {
    const SINGLE: u32 = 1;
    if attr == 0 || size.is_null() {
        return Err(Errno::EINVAL.into());
    }
    c.read_value::<u32>(size.0)?;
    if flags != 0 && (context.is_null() || flags != SINGLE) {
        return Err(Errno::EINVAL.into());
    }
    c.write_value(size.0, &0u32)?;
    Err(Errno::EOPNOTSUPP.into())
}

pub fn lsm_set_self_attr(c: &mut Current, _attr: u32, context: Ptr, size: u32, flags: u32) -> SysResult {
    if flags != 0 || size < CONTEXT {
        return Err(Errno::EINVAL.into());
    }
    if u64::from(size) > PAGE_SIZE {
        return Err(Errno::E2BIG.into());
    }
    let [_, _, len, text] = c.read_value::<[u64; 4]>(context.0)?;
    if u64::from(size) < len || len < u64::from(CONTEXT) || text > len - u64::from(CONTEXT) {
        return Err(Errno::EINVAL.into());
    }
    Err(Errno::EOPNOTSUPP.into())
}
