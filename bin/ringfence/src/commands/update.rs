//! `ringfence update`: changes the limits of a container.

use crate::{USAGE_ERROR, values};
use clap::Args;
use lifecycle::{Error, Result, Settings};
use oci_spec::runtime::{
    LinuxBlockIo, LinuxCpu, LinuxMemory, LinuxPids, LinuxResources, LinuxResourcesBuilder,
};
use std::io::Read;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Update {
    /// File with the limits in the form of the configuration's linux.resources, - for standard input
    #[arg(long, short = 'r', value_name = "FILE")]
    pub(crate) resources: Option<PathBuf>,
    /// Memory limit in bytes or with a unit (512M, 1g), -1 for none
    #[arg(long, short = 'm', value_name = "BYTES", allow_hyphen_values = true, value_parser = values::bytes)]
    pub(crate) memory: Option<i64>,
    /// Memory that is kept for the container when the host runs short, likewise
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = values::bytes)]
    pub(crate) memory_reservation: Option<i64>,
    /// Memory and swap together, likewise
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = values::bytes)]
    pub(crate) memory_swap: Option<i64>,
    /// Processor time that may be used in a period, in microseconds
    #[arg(long, value_name = "US", allow_hyphen_values = true)]
    pub(crate) cpu_quota: Option<i64>,
    /// That period, in microseconds
    #[arg(long, value_name = "US")]
    pub(crate) cpu_period: Option<u64>,
    /// Processor time saved from earlier periods that may be used beyond the quota, in microseconds
    #[arg(long, value_name = "US")]
    pub(crate) cpu_burst: Option<u64>,
    /// 1: only what no other group wants (SCHED_IDLE), 0: as usual
    #[arg(long, value_name = "0|1", allow_hyphen_values = true)]
    pub(crate) cpu_idle: Option<i64>,
    /// Period of real-time scheduling, in microseconds
    #[arg(long, value_name = "US")]
    pub(crate) cpu_rt_period: Option<u64>,
    /// Time in that period, in microseconds
    #[arg(long, value_name = "US", allow_hyphen_values = true)]
    pub(crate) cpu_rt_runtime: Option<i64>,
    /// Weight against others
    #[arg(long, alias = "cpu-share", value_name = "N")]
    pub(crate) cpu_shares: Option<u64>,
    /// Processors
    #[arg(long, value_name = "LIST")]
    pub(crate) cpuset_cpus: Option<String>,
    /// Memory nodes
    #[arg(long, value_name = "LIST")]
    pub(crate) cpuset_mems: Option<String>,
    /// Most tasks, -1 for no limit
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) pids_limit: Option<i64>,
    /// Weight for block devices
    #[arg(long, value_name = "N")]
    pub(crate) blkio_weight: Option<u16>,
    /// The container's name
    pub(crate) id: String,
}

pub(crate) fn update(settings: &Settings, args: &Update) -> Result<()> {
    let limits = limits(args)?;
    if args.resources.is_none() && limits == none()? {
        let text = "say what to change: --memory, --cpu-quota, --pids-limit or another limit, or a file with --resources";
        return Err(Error::with_status(USAGE_ERROR, text));
    }
    lifecycle::update(settings, &args.id, &limits)
}

/// The limits of a command line without any.
fn none() -> Result<LinuxResources> {
    let (memory, cpu) = (LinuxMemory::default(), LinuxCpu::default());
    let limits = LinuxResourcesBuilder::default().memory(memory).cpu(cpu).build();
    limits.map_err(|error| error.to_string().into())
}

/// What is to change: the file's limits, or those of the flags.
fn limits(args: &Update) -> Result<LinuxResources> {
    if let Some(path) = &args.resources {
        let mut text = String::new();
        if path.as_os_str() == "-" {
            std::io::stdin().take(1 << 20).read_to_string(&mut text)?;
        } else {
            text = std::fs::read_to_string(path)
                .map_err(|error| format!("resources {}: {error}", path.display()))?;
        }
        return serde_json::from_str(&text)
            .map_err(|error| format!("{} is not valid: {error}", path.display()).into());
    }
    let mut memory = LinuxMemory::default();
    memory.set_limit(args.memory).set_reservation(args.memory_reservation).set_swap(args.memory_swap);
    let mut cpu = LinuxCpu::default();
    cpu.set_shares(args.cpu_shares)
        .set_quota(args.cpu_quota)
        .set_period(args.cpu_period)
        .set_burst(args.cpu_burst)
        .set_idle(args.cpu_idle)
        .set_realtime_period(args.cpu_rt_period)
        .set_realtime_runtime(args.cpu_rt_runtime)
        .set_cpus(args.cpuset_cpus.clone())
        .set_mems(args.cpuset_mems.clone());
    let mut builder = LinuxResourcesBuilder::default().memory(memory).cpu(cpu);
    if let Some(limit) = args.pids_limit {
        let mut pids = LinuxPids::default();
        pids.set_limit(limit);
        builder = builder.pids(pids);
    }
    if let Some(weight) = args.blkio_weight {
        let mut io = LinuxBlockIo::default();
        io.set_weight(Some(weight));
        builder = builder.block_io(io);
    }
    builder.build().map_err(|error| error.to_string().into())
}
