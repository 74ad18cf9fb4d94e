//! `ringfence create`: sets a container up, to be started with `start`.

use crate::values;
use clap::Args;
use lifecycle::{CreateOptions, PassedFd, Result, Settings};
use netgofer::Policy;
use std::path::PathBuf;

/// What `create` and `run` have in common.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Directory of the bundle
    #[arg(long, short = 'b', value_name = "DIR", default_value = ".")]
    pub(crate) bundle: PathBuf,
    /// Socket that receives the container's terminal
    #[arg(long, value_name = "SOCKET")]
    pub(crate) console_socket: Option<PathBuf>,
    /// File for the process id that stands for the container on the host
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,
    /// Pass that many descriptors, from 3 on, to the container
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) preserve_fds: u32,
    /// Pass a descriptor, HERE its number in this process, INSIDE the one in the container
    #[arg(long, value_name = "HERE:INSIDE", value_parser = values::passed_fd)]
    pub(crate) pass_fd: Vec<PassedFd>,
    /// Refused
    #[arg(long, hide = true, value_parser = values::refused("a program is started by its name; pass the file with --pass-fd FD:3 and run /proc/self/fd/3"))]
    pub(crate) exec_fd: Option<String>,
    /// Without effect: what a sandbox has to say goes to --debug-log
    #[arg(long, hide = true, value_name = "FILE")]
    pub(crate) user_log: Option<PathBuf>,
    /// Accepted as runc has it: a root file system in memory makes no difference here
    #[arg(long)]
    pub(crate) no_pivot: bool,
    /// Accepted as runc has it: there are no host keyrings inside
    #[arg(long)]
    pub(crate) no_new_keyring: bool,
    /// What may be reached with --network=host, everything else being refused: HOST[:PORT][/tcp|udp],...
    #[arg(long, value_name = "LIST")]
    pub(crate) allow_net: Vec<Policy>,
    /// Name for the container
    pub(crate) id: String,
}

impl Create {
    pub(crate) fn options(&self) -> CreateOptions {
        if self.user_log.is_some() {
            log::warn!("--user-log is without effect: what the kernel inside has to say goes to --debug-log");
        }
        CreateOptions {
            id: self.id.clone(),
            bundle: self.bundle.clone(),
            console_socket: self.console_socket.clone(),
            pid_file: self.pid_file.clone(),
            preserve_fds: self.preserve_fds,
            pass_fds: self.pass_fd.clone(),
            allow_net: Policy::all(&self.allow_net),
            own_group: false,
            keep_tcp: false,
            image: None,
            pooled: false,
        }
    }
}

/// `create` alone.
#[derive(Debug, Args)]
pub(crate) struct CreateCommand {
    #[command(flatten)]
    create: Create,
    /// Directory of the image of a checkpoint that "start" lets go on, in place of the first program
    #[arg(long, value_name = "DIR")]
    image_path: Option<PathBuf>,
}

pub(crate) fn create(settings: &Settings, args: &CreateCommand) -> Result<()> {
    let options = args.create.options();
    match &args.image_path {
        Some(image) => lifecycle::create_from(settings, options, image),
        None => lifecycle::create(settings, &options),
    }
}
