//! `update`: the limits of a container.

use crate::find::connect;
use crate::record::Status;
use crate::{Result, Settings, weights};
use oci_spec::runtime::LinuxResources;

/// Changes the limits of a container; what `resources` does not name stays.
pub fn update(settings: &Settings, id: &str, resources: &LinuxResources) -> Result<()> {
    let (container, record) = settings.find(id)?;
    if record.state.status == Status::Stopped {
        return Err("container not running".into());
    }
    let _lock = container.lock()?;
    let resources = &named(resources);
    record.groups()?.set(resources)?;
    weights::update(settings, &container, record.clone(), resources)?;
    if let Some(pids) = resources.pids() {
        if record.is_frozen() {
            return Err("the container is paused: resume it to change how many tasks it may have".into());
        }
        // The limit itself is the kernel's business inside; the host's is wider.
        let limit = u32::try_from(pids.limit()).ok();
        connect(&container)?.limit_tasks(limit)?;
    }
    Ok(())
}

/// What there is to change. A limit of 0 tasks changes nothing, as with crun and runc; -1 takes the limit away.
fn named(resources: &LinuxResources) -> LinuxResources {
    let mut named = resources.clone();
    if named.pids().as_ref().is_some_and(|pids| pids.limit() == 0) {
        named.set_pids(None);
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use oci_spec::runtime::LinuxPids;

    #[test]
    fn no_tasks_are_no_limit_to_set() {
        let of = |limit| {
            let (mut resources, mut pids) = (LinuxResources::default(), LinuxPids::default());
            pids.set_limit(limit);
            resources.set_pids(Some(pids));
            named(&resources).pids().as_ref().map(LinuxPids::limit)
        };
        assert_eq!([of(0), of(1), of(-1)], [None, Some(1), Some(-1)]);
    }
    use crate::testing::{StateDir, record};

    #[test]
    fn there_must_be_something_to_limit() {
        let dir = StateDir::new("update");
        dir.ended("over");
        let _held = dir.living("x", &record("x", Status::Running, false));
        let refused = |id| update(&dir.settings(), id, &LinuxResources::default()).unwrap_err().to_string();
        assert_eq!(refused("over"), "container not running");
        assert!(refused("x").contains("--ignore-cgroups"));
    }
}
