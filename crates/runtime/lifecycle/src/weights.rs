//! The share of the processors that a sandbox of several containers has.
//!
//! The sentry of a pod is in the control group of the first container, which is a pause container with almost no
//! shares. But the sentry serves the system calls of all containers. So that group gets the weight of all containers of
//! the pod together, again whenever a container comes, goes or gets another share.

use crate::directory::{self, Container};
use crate::record::Record;
use crate::{Result, Settings};
use bundle::Pod;
use cgroups::Manager;
use oci_spec::runtime::LinuxResources;

/// Has the sandbox called `sandbox` weigh as much as its containers. `new` is the group of one that is just being made. What
/// cannot be done is logged: the containers run all the same.
pub(crate) fn follow(settings: &Settings, sandbox: &str, new: Option<&Manager>) {
    let Some(container) = Container::at(&settings.state_dir(), sandbox) else { return };
    let Ok(_lock) = container.lock() else { return };
    // It may have ended meanwhile.
    if let Ok(Some(mut record)) = container.read()
        && let Err(error) = weigh(settings, &container, &mut record, new)
    {
        log::warn!("processor shares of sandbox {sandbox}: {error}");
    }
}

/// The same after `update` of a container. The caller holds the container's lock.
pub(crate) fn update(
    settings: &Settings,
    container: &Container,
    mut record: Record,
    resources: &LinuxResources,
) -> Result<()> {
    let given = resources.cpu().as_ref().and_then(|cpu| cpu.shares()).is_some_and(|shares| shares != 0)
        || resources.unified().as_ref().is_some_and(|unified| unified.contains_key("cpu.weight"));
    match record.pod() {
        _ if !given => Ok(()),
        Pod::Member(sandbox) => {
            follow(settings, &sandbox, None);
            Ok(())
        }
        _ if record.own_weight().is_some() => {
            record.set_own_weight(record.groups()?.cpu_weight());
            container.write(&record)?;
            weigh(settings, container, &mut record, None)
        }
        // No container has joined it yet.
        _ => Ok(()),
    }
}

/// Sets the weight of a sandbox's group. Its own weight is written down when the first container joins.
fn weigh(
    settings: &Settings,
    container: &Container,
    record: &mut Record,
    new: Option<&Manager>,
) -> Result<()> {
    let Some(saved) = record.saved_groups() else { return Ok(()) };
    let groups = Manager::load(saved);
    if record.own_weight().is_none() {
        record.set_own_weight(groups.cpu_weight());
        container.write(record)?;
    }
    let Some(own) = record.own_weight() else { return Ok(()) };
    let member = Pod::Member(record.state.id.clone());
    let others = directory::list(&settings.state_dir())?;
    let others = others.iter().filter(|other| other.state.pid != 0 && other.pod() == member);
    let others: u64 =
        others.filter_map(|other| Manager::load(other.saved_groups()?).cpu_weight()).sum::<u64>();
    groups.set_cpu_weight(own + others + new.and_then(Manager::cpu_weight).unwrap_or(0))?;
    Ok(())
}
