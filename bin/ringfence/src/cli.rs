//! The command line's grammar. Names follow runsc; global flags come before the subcommand.

use crate::commands::checkpoint::{Checkpoint, CloneArgs, Restore};
use crate::commands::create::CreateCommand;
use crate::commands::debug::Debug;
use crate::commands::delete::Delete;
use crate::commands::do_::Do;
use crate::commands::do_snapshot::SnapshotCommand;
use crate::commands::events::Events;
use crate::commands::exec::Exec;
use crate::commands::id::Id;
use crate::commands::install::{Install, Uninstall};
use crate::commands::kill::Kill;
use crate::commands::list::List;
use crate::commands::metrics::{ExportMetrics, MetricMetadata, MetricServer};
use crate::commands::overlay::Overlay;
use crate::commands::policy::PolicyCommand;
use crate::commands::pool::Pool;
use crate::commands::port_forward::PortForward;
use crate::commands::ps::Ps;
use crate::commands::run::Run;
use crate::commands::session::{Branch, SessionCommand, Undo};
use crate::commands::shell::{Completions, Man};
use crate::commands::spec::Spec;
use crate::commands::syscalls::Syscalls;
use crate::commands::trace::Trace;
use crate::commands::update::Update;
use crate::commands::wait::Wait;
use crate::logs::LogFormat;
use crate::runsc::Without;
use crate::{USAGE_ERROR, logs, mistakes, values};
use bundle::Overlay2;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use lifecycle::{PacketCapture, Settings};
use spec::{HostUds, Network, PlatformName};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs containers, or single commands, under a kernel of their own.
#[derive(Debug, Parser)]
#[command(name = "ringfence", version = VERSION, subcommand_required = true, arg_required_else_help = false, disable_version_flag = true, args_override_self = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print the version
    #[arg(long, short = 'v', short_alias = 'V', action = clap::ArgAction::Version)]
    version: Option<bool>,
}

/// In the form in which clients read runc's: dockerd looks for the word "version".
const VERSION: &str = concat!("version ", env!("CARGO_PKG_VERSION"), "\nspec: 1.2.1");

/// Flags before the subcommand.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// Directory for the state of containers [default: /run/ringfence, or below $XDG_RUNTIME_DIR when rootless]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Log what happens inside, to --debug-log or standard error
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) debug: bool,
    /// File for the sandbox's own log; %ID%, %TIMESTAMP% and %COMMAND% are replaced; a directory ends in /
    #[arg(long, value_name = "FILE")]
    pub(crate) debug_log: Option<String>,
    /// Form of the sandbox's own log
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) debug_log_format: LogFormat,
    /// Commands that --debug is for, as create,start; all but those after a !, as !exec [default: all]
    #[arg(long, value_name = "COMMANDS", allow_hyphen_values = true)]
    pub(crate) debug_command: Option<String>,
    /// Where a panic of the sandbox's kernel is written to, with its warnings, unless there is a --debug-log: then there
    #[arg(long, value_name = "FILE")]
    pub(crate) panic_log: Option<String>,
    /// Log every system call of the container
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) strace: bool,
    /// Of --strace only these system calls, by name
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) strace_syscalls: Vec<String>,
    /// What runs the container's code
    #[arg(long, value_enum, default_value_t = Platform::Systrap)]
    pub(crate) platform: Platform,
    /// Network: none (loopback only), host (the host's own sockets) or sandbox (the network namespace's interfaces)
    ///
    /// [default: none for do, sandbox for containers of a bundle]
    #[arg(long, value_parser = values::network, value_name = "MODE")]
    pub(crate) network: Option<Network>,
    /// Let containers that are to share the host's network (docker run --network host) use the host's sockets
    ///
    /// Without it such containers do not start, unless --network=host is given, which is for all containers.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) host_network: bool,
    /// Whether containers may have CAP_NET_RAW, which raw and packet sockets take, if their configuration gives it
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) net_raw: bool,
    /// File for the packets of a sandbox, in tcpdump's format; %ID%, %TIMESTAMP% and %COMMAND% are replaced
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap_log: Option<String>,
    /// Bytes that --pcap-log keeps of each packet
    #[arg(long, value_name = "BYTES", default_value_t = 262_144, value_parser = clap::value_parser!(u32).range(64..=262_144))]
    pub(crate) pcap_snaplen: u32,
    /// How long the file of --pcap-log may become, with k, m or g; then the capture ends
    #[arg(long, value_name = "SIZE", default_value = "1g", value_parser = values::capture_size)]
    pub(crate) pcap_max_size: u64,
    /// Trace session that every sandbox begins with, as JSON: no point of the first process is missed
    #[arg(long, value_name = "FILE")]
    pub(crate) pod_init_config: Option<PathBuf>,
    /// Policy that every sandbox begins with: rules about what its processes may do (see "policy check")
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// File for the decisions of --policy, to which lines are only added; %ID% and %TIMESTAMP% are replaced
    #[arg(long, value_name = "FILE", requires = "policy")]
    pub(crate) policy_log: Option<PathBuf>,
    /// Private key in PEM that signs the end of --policy-log (see "policy keygen")
    #[arg(long, value_name = "FILE", requires = "policy_log")]
    pub(crate) policy_key: Option<PathBuf>,
    /// Where writes go: MOUNT:MEDIUM[,size=N][,commit[=privileged]], or none to write to the files themselves; MOUNT is root or all, MEDIUM memory, self (a hidden file of the directory) or dir=/PATH; with commit (root only) they reach the files when the container ends or is paused, with =privileged devices, set-ID bits and capabilities of files as well
    ///
    /// [default: root:memory for do, which never writes through; none for containers of a bundle]
    #[arg(long, value_parser = values::overlay, value_name = "SPEC")]
    pub(crate) overlay2: Option<Overlay2>,
    /// Which processes change a root that is written directly: exclusive (the container; changes by others are seen
    /// within a millisecond) or shared
    #[arg(long, value_enum, default_value_t = FileAccess::Exclusive)]
    pub(crate) file_access: FileAccess,
    /// The same for bind mounts; shared: changes by others are seen at once
    #[arg(long, value_enum, default_value_t = FileAccess::Shared)]
    pub(crate) file_access_mounts: FileAccess,
    /// Whether the kernel inside opens files of the host itself, below directories that it was given; false: the gofer does it, and the kernel may make no call with a path
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) directfs: bool,
    /// Files of a gofer of yours (docs/gofer-protocol.md), which listens on a Unix socket: unix:/PATH/OF/SOCKET[:/DESTINATION], the destination being where they are mounted [default: /gofer]; may be given several times
    #[arg(long, value_parser = values::gofer, value_name = "ADDRESS")]
    pub(crate) gofer: Vec<bundle::Gofer>,
    /// Whether FIFOs in volumes and bind mounts connect to programs outside
    #[arg(long, value_enum, default_value_t = HostFifo::None)]
    pub(crate) host_fifo: HostFifo,
    /// Unix sockets in volumes and bind mounts: open reaches those of programs outside by connect(2), create makes those that programs inside bind reachable from outside, all does both
    #[arg(long, value_name = "none|open|create|all", default_value = "none", value_parser = values::host_uds, action = clap::ArgAction::Set)]
    pub(crate) host_uds: HostUds,
    /// Whether the configuration's seccomp filter is put on the container's processes, by the kernel inside
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) oci_seccomp: bool,
    /// Most descriptors of the host that each of the sandbox's processes may have; -1 for the caller's limit
    #[arg(long, value_name = "N", default_value_t = -1, allow_hyphen_values = true, value_parser = values::descriptors)]
    pub(crate) fdlimit: i64,
    /// Run without root's privileges, the caller being root inside; implied for ordinary users
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "auto", default_missing_value = "true", value_name = "true|false|auto", value_parser = values::rootless, action = clap::ArgAction::Set)]
    pub(crate) rootless: bool,
    /// File for errors and warnings of the command line [default: standard error]
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// The same as a descriptor of the caller; --log is then not used
    #[arg(long, value_name = "FD", value_parser = clap::value_parser!(i32).range(3..))]
    pub(crate) log_fd: Option<i32>,
    /// Form of --log
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    /// Make no control groups; a limit in the configuration is then without effect
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) ignore_cgroups: bool,
    /// Have systemd make the control groups
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) systemd_cgroup: bool,
    /// Address of metric-server, where that gives none; a command of do is shown there only with this flag
    #[arg(long, value_name = "ADDRESS", value_parser = values::address)]
    pub(crate) metric_server: Option<String>,
    #[command(flatten)]
    pub(crate) without: Without,
}

/// CAP_NET_RAW as a mask.
const NET_RAW: u64 = 1 << 13;

impl Global {
    /// What they mean for every container.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            debug_log_format: self.debug_log_format.into(),
            panic_log: self.panic_log.clone(),
            log: self.log.clone(),
            log_format: self.log_format.into(),
            descriptors: u64::try_from(self.fdlimit).ok(),
            root: self.root.clone(),
            rootless: self.rootless,
            containers: bundle::Options {
                overlay: self.overlay2.clone().unwrap_or_default(),
                root_access: self.file_access.into(),
                bind_access: self.file_access_mounts.into(),
                host_fifos: self.host_fifo == HostFifo::Open,
                host_uds: self.host_uds,
                through_gofer: !self.directfs,
                gofers: self.gofer.clone(),
                network: self.network.unwrap_or(Network::Sandbox),
                host_network: self.host_network,
                withheld: if self.net_raw { 0 } else { NET_RAW },
                platform: self.platform.into(),
                strace: self.strace,
                strace_only: self.strace_syscalls.clone(),
                without_seccomp: !self.oci_seccomp,
                debug: self.debug,
                preserve_fds: 0,
            },
            trace: Vec::new(),
            network: self.network,
            ignore_cgroups: self.ignore_cgroups,
            systemd_cgroup: self.systemd_cgroup,
            debug_log: self.debug_log.clone(),
            watched: self.metric_server.is_some(),
            capture: self.pcap_log.clone().map(|file| PacketCapture {
                file,
                snaplen: self.pcap_snaplen,
                most: self.pcap_max_size,
            }),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Platform {
    /// System calls trapped by a signal, handed over in shared memory
    Systrap,
    /// ptrace(2): slow, simple
    Ptrace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileAccess {
    /// The container alone
    Exclusive,
    /// Others as well
    Shared,
}

impl From<FileAccess> for spec::FileAccess {
    fn from(access: FileAccess) -> Self {
        match access {
            FileAccess::Exclusive => Self::Exclusive,
            FileAccess::Shared => Self::Shared,
        }
    }
}

impl From<Platform> for PlatformName {
    fn from(platform: Platform) -> Self {
        match platform {
            Platform::Systrap => Self::Systrap,
            Platform::Ptrace => Self::Ptrace,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HostFifo {
    /// Each sandbox has its own pipe behind the name
    None,
    /// They can be opened
    Open,
}

impl Command {
    /// Whether it makes a sandbox, or a container in one.
    pub(crate) fn makes_sandboxes(&self) -> bool {
        matches!(
            self,
            Self::Do(_) | Self::Create(_) | Self::Run(_) | Self::Restore(_) | Self::Clone(_) | Self::Pool(_)
        )
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command on the host's files, read-only under a throw-away overlay
    ///
    /// The command can READ every file that the caller can, and gets the caller's whole environment, tokens included. Hidden by
    /// default are keys, tokens and shell histories of the caller's home (.ssh, .gnupg, .aws, .azure, .config/gcloud, .kube,
    /// .docker/config.json, .netrc, .git-credentials, .npmrc, .bash_history and the like). For code that you do
    /// not trust: --hide and --clear-env, or --root with another root file system. It has no network unless asked for.
    #[command(
        after_help = "Examples:\n  ringfence do bash\n  ringfence do --volume $PWD --clear-env --env PATH --memory 1g --timeout 10m make\n  ringfence do --allow-net pypi.org:443,files.pythonhosted.org:443 pip install package"
    )]
    Do(Do),
    /// Set a container up from an OCI bundle, to be started with start
    #[command(
        after_help = "Examples:\n  ringfence create --bundle box box && ringfence start box\n  ringfence create --bundle box --console-socket /run/tty.sock --pid-file box.pid box"
    )]
    Create(CreateCommand),
    /// Start a container that was created
    Start(Id),
    /// Run a container from an OCI bundle
    #[command(
        after_help = "Examples:\n  ringfence run --bundle box box\n  ringfence run --detach --bundle box box\n  ringfence --overlay2=root:memory run --bundle box box    # the root stays as it is"
    )]
    Run(Run),
    /// Run another process in a container
    #[command(
        after_help = "Examples:\n  ringfence exec box ls /\n  ringfence exec --tty box sh\n  ringfence exec --user 1000:1000 --cwd /srv --env LANG=C box make"
    )]
    Exec(Exec),
    /// Write a new config.json
    #[command(
        after_help = "Examples:\n  ringfence spec --bundle box -- sh -c 'echo hello'\n  ringfence spec --rootless --bundle box"
    )]
    Spec(Spec),
    /// Show what this runtime can do as JSON
    Features,
    /// Add this runtime to the Docker daemon's configuration
    #[command(
        after_help = "Examples:\n  ringfence install\n  ringfence install --runtime ringfence-debug -- --debug --debug-log /var/log/ringfence/"
    )]
    Install(Install),
    /// Remove this runtime from the Docker daemon's configuration
    Uninstall(Uninstall),
    /// List containers
    #[command(after_help = "Examples:\n  ringfence list\n  ringfence list --format json")]
    List(List),
    /// Show a container's state as JSON
    State(Id),
    /// Show the processes of a container
    #[command(
        after_help = "Examples:\n  ringfence ps box\n  ringfence ps box -o pid,rss,args    # the host's ps(1), of the same processes"
    )]
    Ps(Ps),
    /// Send a signal to a container
    #[command(
        after_help = "Examples:\n  ringfence kill box\n  ringfence kill box KILL\n  ringfence kill --pid 7 box HUP"
    )]
    Kill(Kill),
    /// Wait for the end of a container, or of one of its processes, and show the exit status
    #[command(after_help = "Examples:\n  ringfence wait box\n  ringfence wait --pid 7 box")]
    Wait(Wait),
    /// Remove what containers hold
    #[command(after_help = "Examples:\n  ringfence delete box\n  ringfence delete --force box other")]
    Delete(Delete),
    /// Stop all processes of a container for a while
    Pause(Id),
    /// Let the processes of a paused container go on
    Resume(Id),
    /// Change the limits of a container
    #[command(
        after_help = "Examples:\n  ringfence update --memory 512M --pids-limit 100 box\n  ringfence update --resources limits.json box"
    )]
    Update(Update),
    /// Show what a container uses, and when memory runs out
    #[command(
        after_help = "Examples:\n  ringfence events --stats box\n  ringfence events --interval 10s box"
    )]
    Events(Events),
    /// Save a running container to an image
    #[command(
        after_help = "Examples:\n  ringfence checkpoint --image-path /tmp/image box\n  ringfence checkpoint --image-path /tmp/image --leave-running box"
    )]
    Checkpoint(Checkpoint),
    /// Make a container from an image, and let it go on
    #[command(
        after_help = "Examples:\n  ringfence restore --image-path /tmp/image --bundle /tmp/bundle --detach box"
    )]
    Restore(Restore),
    /// Make further containers in the state of a running one, which goes on
    #[command(
        after_help = "Examples:\n  ringfence clone box twin\n  ringfence clone --count 3 box try    # try-1, try-2, try-3"
    )]
    Clone(CloneArgs),
    /// Keep sandboxes started, for "restore", "clone" and "run" with --pool
    #[command(
        after_help = "Examples:\n  ringfence pool serve --bundle /tmp/bundle --size 10 warm\n  ringfence restore --pool warm --image-path /tmp/image --detach box\n  ringfence pool list"
    )]
    Pool(Pool),
    /// List and remove snapshots of do
    #[command(
        after_help = "Examples:\n  ringfence do --snapshot warm python3 server.py    # writes 1 to /proc/gvisor/checkpoint when it is ready\n  ringfence do --from warm\n  ringfence snapshot list\n  ringfence snapshot delete warm"
    )]
    Snapshot(SnapshotCommand),
    /// List and remove sessions of do, and show their steps
    #[command(
        after_help = "Examples:\n  ringfence do --session work pip install --target /opt/x package\n  ringfence do --session work ls /opt/x\n  ringfence session log work\n  ringfence session delete work"
    )]
    Session(SessionCommand),
    /// Undo the last commands of a session
    #[command(after_help = "Examples:\n  ringfence undo work\n  ringfence undo work 3")]
    Undo(Undo),
    /// Have the next command of a session begin with any of its steps
    #[command(after_help = "Examples:\n  ringfence session log work\n  ringfence branch work 2")]
    Branch(Branch),
    /// Forward connections on the host to a port of a container
    #[command(
        after_help = "Examples:\n  ringfence port-forward box 8080:80\n  ringfence port-forward box 0:80    # any free port of 127.0.0.1"
    )]
    PortForward(PortForward),
    /// Show or pack what a container has changed in its root, which lies under an overlay
    #[command(
        after_help = "Examples:\n  ringfence overlay diff box\n  ringfence overlay export -o layer.tar box\n  ringfence overlay commit box"
    )]
    Overlay(Overlay),
    /// Check and test rules about what containers may do; verify logs of their decisions
    #[command(
        after_help = "Examples:\n  ringfence policy check policy.yaml\n  ringfence policy test policy.yaml cases.yaml\n  ringfence policy verify --key operator.pub decisions.log"
    )]
    Policy(PolicyCommand),
    /// Change what a running sandbox logs, to its --debug-log; list its processes; profile it; signal its kernel
    #[command(
        after_help = "Examples:\n  ringfence debug --ps box\n  ringfence debug --profile box.svg --duration 10s box\n  ringfence debug --coverage --out report.json box\n  ringfence debug --strace all box    # to the file that --debug-log named"
    )]
    Debug(Debug),
    /// Watch what the programs of a sandbox do
    #[command(
        after_help = "Examples:\n  ringfence trace watch box\n  ringfence trace watch --point sentry/execve,'syscall/connect/*' --json box\n  ringfence trace create --config session.json box\n  ringfence trace metadata"
    )]
    Trace(Trace),
    /// Show the figures of a sandbox in the text format of Prometheus
    #[command(
        after_help = "Examples:\n  ringfence export-metrics box\n  ringfence export-metrics --sandbox-metrics-filter '^fs_' box"
    )]
    ExportMetrics(ExportMetrics),
    /// List the figures of sandboxes: name, type, unit and meaning
    MetricMetadata(MetricMetadata),
    /// Serve the figures of all sandboxes over HTTP, for Prometheus
    #[command(
        after_help = "Examples:\n  ringfence metric-server localhost:1337 &\n  curl http://localhost:1337/metrics\n  ringfence --root /run/docker/runtime-runc/moby metric-server /run/metrics.sock"
    )]
    MetricServer(MetricServer),
    /// Show what memory the processes of a sandbox take on the host, as JSON
    Usage(Id),
    /// List the global flags
    Flags,
    /// List the features of this machine's processors
    CpuFeatures,
    /// List the system calls of Linux, and how far the kernel inside has them
    #[command(
        after_help = "Examples:\n  ringfence syscalls\n  ringfence syscalls --format json --out syscalls.json"
    )]
    Syscalls(Syscalls),
    /// Print the version
    Version,
    /// Print a shell's completions
    #[command(
        after_help = "Examples:\n  ringfence completions bash > /etc/bash_completion.d/ringfence\n  ringfence completions zsh > ~/.zsh/_ringfence    # a directory of $fpath\n  ringfence completions fish > ~/.config/fish/completions/ringfence.fish"
    )]
    Completions(Completions),
    /// Write manual pages, one for each command
    Man(Man),
}

/// Parses the process's arguments; an error has been shown and gives the exit status.
pub(crate) fn parse() -> Result<Cli, ExitCode> {
    let args = as_clap_takes_them(std::env::args_os());
    let parsed = Cli::command().try_get_matches_from(&args).and_then(|matches| {
        let mut cli = Cli::from_arg_matches(&matches)?;
        cli.global.settle(matches.subcommand_name().unwrap_or_default())?;
        Ok(cli)
    });
    parsed.map_err(|error| {
        if !error.use_stderr() {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        let (log, format) = log_of(&args);
        let message = format!(
            "{}; see ringfence {}--help",
            mistakes::explain(&error, &Cli::command()),
            command_in(&args)
        );
        logs::tell(log.as_deref(), format, &message);
        ExitCode::from(USAGE_ERROR)
    })
}

/// The command that a line names, with a space behind it; nothing without one.
fn command_in(args: &[OsString]) -> String {
    let grammar = Cli::command();
    let known = |arg: &OsString| {
        let name = arg.to_str()?;
        grammar
            .find_subcommand(name)
            .filter(|command| !command.is_hide_set())
            .map(|command| command.get_name())
    };
    args.iter().skip(1).find_map(known).map(|name| format!("{name} ")).unwrap_or_default()
}

/// Fails when these are not global flags that the command line would take.
pub(crate) fn check_global_flags(flags: &[String]) -> Result<(), String> {
    let line = ["ringfence"].into_iter().chain(flags.iter().map(String::as_str)).chain(["list"]);
    let args = as_clap_takes_them(line.map(OsString::from));
    match Cli::try_parse_from(args) {
        Err(error) if error.use_stderr() => Err(mistakes::explain(&error, &Cli::command())),
        Ok(Cli { command: Command::List(_), .. }) => Ok(()),
        _ => Err("these are not global flags alone".into()),
    }
}

/// Where a command line that makes no sense wants its errors: the caller may look nowhere else.
fn log_of(args: &[OsString]) -> (Option<PathBuf>, LogFormat) {
    let Ok(found) = Cli::command().ignore_errors(true).try_get_matches_from(args) else {
        return (None, LogFormat::Text);
    };
    let log = found.try_get_one::<PathBuf>("log").ok().flatten().cloned();
    let fd = found.try_get_one::<i32>("log_fd").ok().flatten().map(|fd| descriptor(*fd));
    let format = found.try_get_one::<LogFormat>("log_format").ok().flatten().copied();
    (fd.or(log), format.unwrap_or(LogFormat::Text))
}

/// The path of one of this process's descriptors.
fn descriptor(fd: i32) -> PathBuf {
    format!("/proc/self/fd/{fd}").into()
}

impl Global {
    /// Has flags that bear on others do so, for this command.
    fn settle(&mut self, command: &str) -> Result<(), clap::Error> {
        if let Some(fd) = self.log_fd {
            let path = descriptor(fd);
            if !path.exists() {
                let text = format!(
                    "--log-fd {fd}: the descriptor is not open, or has no file that can be opened again"
                );
                return Err(clap::Error::raw(clap::error::ErrorKind::InvalidValue, text));
            }
            self.log = Some(path);
        }
        if let Some(list) = &self.debug_command {
            self.debug &= is_listed(list, command);
        }
        Ok(())
    }
}

/// Whether a list of commands has this one; after a `!` it is a list of all others.
fn is_listed(list: &str, command: &str) -> bool {
    let (list, negated) = list.strip_prefix('!').map_or((list, false), |rest| (rest, true));
    list.split(',').any(|name| name.trim() == command) != negated
}

/// Global flags as callers of runc and runsc write them: with a single dash, and `--rootless true` in two words.
fn as_clap_takes_them(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let grammar = Cli::command();
    let takes_value = |flag: &str| {
        let name = flag.trim_start_matches('-');
        grammar.get_arguments().any(|known| {
            known.get_long() == Some(name)
                && known.get_action().takes_values()
                && !known.is_require_equals_set()
        })
    };
    let mut args = args.into_iter().peekable();
    let mut taken: Vec<OsString> = args.next().into_iter().collect();
    while let Some(flag) = args.next_if(|arg| arg.as_encoded_bytes().starts_with(b"-")) {
        let Some(text) = flag.to_str() else {
            taken.push(flag);
            continue;
        };
        let short = text.len() <= 2 || text.starts_with("--");
        let mut text = if short { text.to_string() } else { format!("-{text}") };
        if takes_value(&text) {
            // In one word, as the value may begin with a dash.
            let mut whole = OsString::from(text);
            if let Some(value) = args.next() {
                whole.push("=");
                whole.push(value);
            }
            taken.push(whole);
            continue;
        }
        let value = |arg: &OsString| ["true", "false", "auto"].iter().any(|value| arg == value);
        if text == "--rootless"
            && let Some(value) = args.next_if(value)
        {
            text = format!("{text}={}", value.to_string_lossy());
        }
        taken.push(text.into());
    }
    // containerd's client of runc writes this flag of restore with one dash.
    let restores = args.peek().is_some_and(|command| command == "restore");
    let one_dash = |arg: &OsString| restores && arg == "-no-subreaper";
    taken.extend(args.map(|arg| if one_dash(&arg) { "--no-subreaper".into() } else { arg }));
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn roots_are_told_apart() {
        let line = ["ringfence", "--root=/s", "--debug", "do", "--root", "/r", "ls", "-l", "--root", "x"];
        let cli = Cli::try_parse_from(line).unwrap();
        assert_eq!(cli.global.root.as_deref(), Some("/s".as_ref()));
        assert!(cli.global.debug && !cli.global.strace);
        let Command::Do(args) = cli.command else { panic!() };
        assert_eq!(args.root.to_str(), Some("/r"));
        assert_eq!(args.args, ["ls", "-l", "--root", "x"]);
    }

    #[test]
    fn global_flags_as_others_write_them() {
        let parse = |line: &[&str]| {
            let words = std::iter::once("ringfence").chain(line.iter().copied());
            Cli::try_parse_from(as_clap_takes_them(words.map(OsString::from)))
        };
        let cli = parse(&["-root", "/s", "-log=/l", "--rootless", "true", "-debug", "list", "-q"]).unwrap();
        assert_eq!(cli.global.root.as_deref(), Some("/s".as_ref()));
        assert!(cli.global.rootless && cli.global.debug && cli.global.log.is_some());
        assert!(parse(&["--rootless", "do", "true"]).unwrap().global.rootless);
        for line in [["--rootless", "auto", "list"], ["--rootless=false", "--debug", "list"]] {
            assert!(!parse(&line).unwrap().global.rootless, "{line:?}");
        }
        // A value is not a flag, and what follows the command is the command's.
        assert_eq!(parse(&["--root", "-abc", "list"]).unwrap().global.root.as_deref(), Some("-abc".as_ref()));
        let Command::Do(args) = parse(&["do", "ls", "-rootless"]).unwrap().command else { panic!() };
        assert_eq!(args.args, ["ls", "-rootless"]);
    }

    #[test]
    fn unsupported_values_are_refused() {
        assert!(is_listed("create,start", "start") && !is_listed("create", "start"));
        assert!(is_listed("!exec", "start") && !is_listed("!exec,start", "start"));
        for flag in ["--network=bridge", "--overlay2=root:disk", "--platform=kvm", "--frobnicate"] {
            assert!(Cli::try_parse_from(["ringfence", flag, "list"]).is_err(), "{flag}");
        }
    }
}
