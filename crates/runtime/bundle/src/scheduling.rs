//! `process.scheduler` and `process.ioPriority`, checked as Linux checks them. The kernel inside records them and
//! reports them to the guest; the host schedules the sandbox's threads as it schedules any others.

use crate::{Result, fail};
use oci_spec::runtime::{
    IOPriorityClass, LinuxIOPriority, LinuxSchedulerFlag as Flag, LinuxSchedulerPolicy as Policy, Scheduler,
};
use spec::SchedulerSpec;

/// SCHED_RESET_ON_FORK.
const RESET_ON_FORK: i32 = 0x4000_0000;

pub(crate) fn scheduler(scheduler: &Scheduler) -> Result<SchedulerSpec> {
    let policy = scheduler.policy();
    let number = match policy {
        Policy::SchedOther => 0,
        Policy::SchedFifo => 1,
        Policy::SchedRr => 2,
        Policy::SchedBatch => 3,
        Policy::SchedIdle => 5,
        Policy::SchedIso | Policy::SchedDeadline => {
            fail!("process.scheduler.policy {policy} is not supported; use another one")
        }
    };
    let priority = scheduler.priority().unwrap_or(0);
    match policy {
        Policy::SchedFifo | Policy::SchedRr if !(1..=99).contains(&priority) => {
            fail!("process.scheduler.priority {priority} is not valid for {policy}; use 1 to 99")
        }
        Policy::SchedOther | Policy::SchedBatch | Policy::SchedIdle if priority != 0 => {
            fail!("process.scheduler.priority can only be specified for SchedFIFO or SchedRR policy")
        }
        _ => {}
    }
    let nice = scheduler.nice();
    if let Some(nice) = nice.filter(|nice| !(-20..=19).contains(nice)) {
        fail!("process.scheduler.nice {nice} is not valid; use -20 to 19");
    }
    let deadline = [scheduler.runtime(), scheduler.deadline(), scheduler.period()];
    if deadline.iter().any(|value| value.is_some_and(|value| value != 0)) {
        fail!(
            "process.scheduler: runtime, deadline and period can only be specified for SchedDeadline policy"
        );
    }
    let mut flags = 0;
    for flag in scheduler.flags().iter().flatten() {
        match flag {
            Flag::SchedResetOnFork => flags |= RESET_ON_FORK,
            other => fail!("process.scheduler.flags: {other} is not supported"),
        }
    }
    Ok(SchedulerSpec { policy: number | flags, priority, nice: *nice })
}

/// As ioprio_set(2) takes it.
pub(crate) fn io_priority(io: &LinuxIOPriority) -> Result<i32> {
    let class = match io.class() {
        IOPriorityClass::IoprioClassRt => 1,
        IOPriorityClass::IoprioClassBe => 2,
        IOPriorityClass::IoprioClassIdle => 3,
    };
    let priority = io.priority();
    match i32::try_from(priority) {
        Ok(priority @ 0..=7) => Ok(class << 13 | priority),
        _ => fail!("process.ioPriority.priority {priority} is not valid; use 0 to 7"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(json: serde_json::Value) -> Result<SchedulerSpec> {
        scheduler(&serde_json::from_value(json).unwrap())
    }

    #[test]
    fn policies() {
        let batch = parse(json!({ "policy": "SCHED_BATCH", "nice": 5 })).unwrap();
        assert_eq!(batch, SchedulerSpec { policy: 3, priority: 0, nice: Some(5) });
        let rr =
            parse(json!({ "policy": "SCHED_RR", "priority": 9, "flags": ["SCHED_RESET_ON_FORK"] })).unwrap();
        assert_eq!(rr, SchedulerSpec { policy: 2 | RESET_ON_FORK, priority: 9, nice: None });
    }

    #[test]
    fn what_is_refused() {
        let error = |json| parse(json).unwrap_err().to_string();
        assert!(error(json!({ "policy": "SCHED_DEADLINE" })).contains("process.scheduler.policy"));
        assert!(error(json!({ "policy": "SCHED_FIFO" })).contains("process.scheduler.priority"));
        assert!(
            error(json!({ "policy": "SCHED_OTHER", "priority": 1 })).contains("process.scheduler.priority")
        );
        assert!(error(json!({ "policy": "SCHED_OTHER", "nice": 20 })).contains("process.scheduler.nice"));
        assert!(error(json!({ "policy": "SCHED_OTHER", "runtime": 1 })).contains("runtime"));
    }

    #[test]
    fn io() {
        let parse = |json| io_priority(&serde_json::from_value(json).unwrap());
        assert_eq!(parse(json!({ "class": "IOPRIO_CLASS_BE", "priority": 4 })).unwrap(), 0x4004);
        assert!(parse(json!({ "class": "IOPRIO_CLASS_RT", "priority": 8 })).is_err());
    }
}
