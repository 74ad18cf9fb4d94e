//! `ringfence wait`: waits for the end of a container, or of a process of it, and shows its exit status.

use crate::output::say;
use clap::Args;
use lifecycle::{Result, Settings, Waited};

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// For one process, by its id inside the container
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<i32>,
    /// The same by its id in the sandbox's first pid namespace
    #[arg(long, value_name = "PID", conflicts_with = "pid")]
    pub(crate) rootpid: Option<i32>,
    /// For the end of the next checkpoint
    #[arg(long, conflicts_with_all = ["pid", "rootpid", "restore"])]
    pub(crate) checkpoint: bool,
    /// For the end of the restore that made the container
    #[arg(long, conflicts_with_all = ["pid", "rootpid"])]
    pub(crate) restore: bool,
    /// The container's name
    pub(crate) id: String,
}

pub(crate) fn wait(settings: &Settings, args: &Wait) -> Result<()> {
    if args.checkpoint {
        return lifecycle::wait_checkpoint(settings, &args.id);
    }
    if args.restore {
        return lifecycle::wait_restore(settings, &args.id);
    }
    let process = args.pid.map(Waited::Inside).or(args.rootpid.map(Waited::Root));
    let status = match process {
        Some(process) => lifecycle::wait_process(settings, &args.id, process)?,
        None => lifecycle::wait(settings, &args.id)?,
    };
    say(serde_json::json!({ "id": args.id, "exitStatus": status }))
}
