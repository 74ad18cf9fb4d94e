//! `linux.resources.devices`: the devices that the container's processes may make and open.

use abi::stat::{major, minor};
use abi::{Errno, Result};
use caller::DeviceUse;
use spec::DeviceRule;

/// EPERM for a use of which some part is refused. Of the rules about a part the last one holds; without one it is allowed.
pub(crate) fn check(rules: &[DeviceRule], device: &DeviceUse) -> Result<()> {
    let parts = [DeviceUse::MKNOD, DeviceUse::READ, DeviceUse::WRITE];
    let refused = |part: u32| {
        let last = rules.iter().rev().find(|rule| rule.access & part != 0 && is_about(rule, device));
        last.is_some_and(|rule| !rule.allow)
    };
    let asked = |part: &u32| device.access & part != 0;
    if parts.into_iter().filter(asked).any(refused) { Err(Errno::EPERM) } else { Ok(()) }
}

fn is_about(rule: &DeviceRule, device: &DeviceUse) -> bool {
    let is = |wanted: Option<u32>, number: u32| wanted.is_none_or(|wanted| wanted == number);
    rule.block.is_none_or(|block| block == device.block)
        && is(rule.major, major(device.number))
        && is(rule.minor, minor(device.number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::stat::makedev;

    #[test]
    fn the_last_rule_holds() {
        let rule = |allow, block, numbers: (Option<u32>, Option<u32>), access| DeviceRule {
            allow,
            block,
            major: numbers.0,
            minor: numbers.1,
            access,
        };
        let rules = [
            rule(false, None, (None, None), 7),
            rule(true, Some(false), (None, None), 1),
            rule(true, Some(false), (Some(10), Some(229)), 3),
        ];
        let ask = |block, number: (u32, u32), access| {
            check(&rules, &DeviceUse { block, number: makedev(number.0, number.1), access })
        };
        assert_eq!(ask(false, (10, 229), 3), Ok(()));
        assert_eq!(ask(false, (10, 229), 4), Err(Errno::EPERM));
        assert_eq!(ask(false, (1, 11), 1), Ok(()));
        assert_eq!(ask(true, (7, 0), 1), Err(Errno::EPERM));
        assert_eq!(ask(false, (1, 11), 2), Err(Errno::EPERM));
        assert_eq!(check(&[], &DeviceUse { block: true, number: 1, access: 7 }), Ok(()));
    }
}
