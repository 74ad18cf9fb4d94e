//! Settings of the TCP/IP stack, which know their bounds.

use super::SysctlView;
use abi::{Errno, Result};
use kernfs::parse_int;

/// The words, as a text.
pub(super) fn get(k: &SysctlView, names: &[&str]) -> String {
    let sysctls = &k.ns.net.stack().sysctls;
    let values = names.iter().filter_map(|name| sysctls.by_name(name)).map(|s| s.get().to_string());
    values.collect::<Vec<_>>().join("\t")
}

/// Sets the words that are given, or none of them. The ends of a range come in order.
pub(super) fn set(k: &SysctlView, names: &[&str], v: &str) -> Result<()> {
    let sysctls = &k.ns.net.stack().sysctls;
    let settings: Vec<_> = names.iter().filter_map(|name| sysctls.by_name(name)).collect();
    let values: Vec<i64> = v.split_whitespace().map(|w| parse_int(w.as_bytes())).collect::<Result<_>>()?;
    let range = names.first().is_some_and(|name| name.ends_with("_port_range/low"));
    if values.is_empty() || values.len() > settings.len() || (range && !values.is_sorted()) {
        return Err(Errno::EINVAL);
    }
    let old: Vec<i64> = settings.iter().map(|s| s.get()).collect();
    for (setting, value) in settings.iter().zip(&values) {
        if let Err(errno) = setting.set(*value) {
            for (setting, value) in settings.iter().zip(old) {
                setting.set(value)?;
            }
            return Err(errno);
        }
    }
    Ok(())
}
