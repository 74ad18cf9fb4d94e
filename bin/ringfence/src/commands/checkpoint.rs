//! `ringfence checkpoint`, `restore` and `clone`.

use super::create::Create;
use crate::values;
use clap::{Args, ValueEnum};
use lifecycle::{AfterCheckpoint, CheckpointOptions, RestoreOptions, Result, RunOptions, Settings};
use std::path::PathBuf;

/// How the pages of an image are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Compression {
    /// Not at all: a restore maps them
    None,
    /// By Zstandard: a restore decompresses all of them before it starts
    Zstd,
}

#[derive(Debug, Args)]
pub(crate) struct Checkpoint {
    /// Directory for the image, which is made if it is not there
    #[arg(long, value_name = "DIR")]
    image_path: PathBuf,
    /// Let the container go on afterwards
    #[arg(long)]
    leave_running: bool,
    /// Wait until a program of the container writes 1 to /proc/gvisor/checkpoint
    #[arg(long)]
    when_asked: bool,
    /// How pages are compressed
    #[arg(long, value_enum, default_value_t = Compression::None)]
    compression: Compression,
    /// Leave no pages of the image in the host's cache
    #[arg(long)]
    direct: bool,
    /// Leave out private memory without a file that is marked by MADV_DONTDUMP or MADV_WIPEONFORK: it is zeros after a restore
    #[arg(long)]
    exclude_dontdump: bool,
    /// Accepted as runsc has it: pages of zeros are never written
    #[arg(long)]
    exclude_committed_zero_pages: bool,
    /// As runc has it: there are no files of the checkpoint's own work; an empty inventory.img, which Podman asks for, is made
    #[arg(long, value_name = "DIR")]
    work_path: Option<PathBuf>,
    /// What peers outside the sandbox see of its end: with "keep" nothing, for restore --tcp=keep; their connections wait
    #[arg(long, value_enum, default_value_t = Tcp::Reset)]
    tcp: Tcp,
    /// As --tcp=keep
    #[arg(long)]
    tcp_established: bool,
    /// Accepted as runc has it: locks are saved in any case
    #[arg(long)]
    file_locks: bool,
    /// Accepted as runc has it: sessions are saved in any case
    #[arg(long)]
    shell_job: bool,
    /// Accepted as runc has it: control groups of the host are those of the new container
    #[arg(long, value_name = "MODE")]
    manage_cgroups_mode: Option<String>,
    /// Refused
    #[arg(long, hide = true, value_parser = values::refused("images do not build on one another"))]
    parent_path: Option<String>,
    /// Refused
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true", value_parser = values::refused("a connection to a Unix socket of the host ends with the container"))]
    ext_unix_sk: Option<String>,
    /// Refused
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true", value_parser = values::refused("pages are read from the image when they are touched in any case"))]
    lazy_pages: Option<String>,
    /// Refused
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true", value_parser = values::refused("memory is saved at once"))]
    pre_dump: Option<String>,
    /// Refused
    #[arg(long, hide = true, value_parser = values::refused("every namespace is saved"))]
    empty_ns: Option<String>,
    /// Name of the container
    id: String,
}

pub(crate) fn checkpoint(settings: &Settings, args: &Checkpoint) -> Result<()> {
    let options = CheckpointOptions {
        image: args.image_path.clone(),
        then: match args.leave_running {
            true => AfterCheckpoint::GoesOn,
            false if args.tcp_established || args.tcp == Tcp::Keep => AfterCheckpoint::EndsSilently,
            false => AfterCheckpoint::Ends,
        },
        inventory: args.work_path.is_some(),
        compress: args.compression == Compression::Zstd,
        direct: args.direct,
        when_asked: args.when_asked,
        exclude_dontdump: args.exclude_dontdump,
    };
    lifecycle::checkpoint(settings, &args.id, &options)
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    #[command(flatten)]
    create: Create,
    /// Directory of the image
    #[arg(long, value_name = "DIR")]
    image_path: PathBuf,
    /// Leave the container in the background
    #[arg(long, short = 'd')]
    detach: bool,
    /// Take the sandbox from a pool, with the bundle of that; only with --detach
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    /// Accepted as runc has it: there are no files of the restore's own work
    #[arg(long, value_name = "DIR")]
    work_path: Option<PathBuf>,
    /// Accepted as runc has it: no process of a container becomes the caller's child
    #[arg(long)]
    no_subreaper: bool,
    /// Read all pages of the image into the host's cache once the container runs
    #[arg(long)]
    background: bool,
    /// Accepted as runsc has it: pages are mapped from the image
    #[arg(long)]
    direct: bool,
    /// What becomes of TCP connections with peers outside the sandbox: "keep" needs the same address
    #[arg(long, value_enum, default_value_t = Tcp::Reset)]
    tcp: Tcp,
    /// As --tcp=keep
    #[arg(long)]
    tcp_established: bool,
    /// Accepted as runc has it: locks are saved in any case
    #[arg(long)]
    file_locks: bool,
    /// Accepted as runc has it: sessions are saved in any case
    #[arg(long)]
    shell_job: bool,
    /// Accepted as runc has it: control groups of the host are those of the new container
    #[arg(long, value_name = "MODE")]
    manage_cgroups_mode: Option<String>,
}

/// What becomes of connections with peers outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tcp {
    /// They go on
    Keep,
    /// They end with a reset
    Reset,
}

pub(crate) fn restore(settings: &Settings, args: &Restore) -> Result<u8> {
    let mut run = RunOptions { create: args.create.options(), detach: args.detach, keep: false };
    run.create.keep_tcp = args.tcp_established || args.tcp == Tcp::Keep;
    lifecycle::restore(
        settings,
        &RestoreOptions {
            run,
            image: args.image_path.clone(),
            background: args.background,
            pool: args.pool.clone(),
        },
    )
}

#[derive(Debug, Args)]
pub(crate) struct CloneArgs {
    /// How many: NEW is then the beginning of their names, NEW-1 that of the first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: Option<u32>,
    /// Take the sandboxes from a pool, with the bundle of that
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    /// Name of the running container
    id: String,
    /// Name of the new one
    new: String,
}

pub(crate) fn clone(settings: &Settings, args: &CloneArgs) -> Result<()> {
    let names: Vec<String> = match args.count {
        None => vec![args.new.clone()],
        Some(count) => (1..=count).map(|n| format!("{}-{n}", args.new)).collect(),
    };
    lifecycle::clone(settings, &args.id, &names, args.pool.as_deref())
}
