//! The command line's side of a start.

use crate::logging::{Format, Sink};
use crate::messages::{Event, LifeMessage, Request};
use crate::role;
use crate::view::View;
use bundle::Prepared;
use channel::{Channel, MAX_FDS};
use confine::ids::{Mapping, write_maps};
use hostsys::spawn::{Child, Groups, Namespaces, Program, spawn};
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, memfd_create, open, openat};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with, socketpair};
use rustix::process::{
    Resource, Signal, WaitId, WaitIdOptions, WaitIdStatus, getrlimit, pidfd_send_signal, waitid,
};
use rustix::thread::{CapabilitySet, LinkNameSpaceType, capabilities, move_into_link_name_space};
use spec::StartError;
use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use writeback::{Proof, Repair};

/// What a sandbox is started with, beside the specification.
pub struct Files {
    /// Standard input, output and error of the container, unless it has a terminal.
    pub stdio: [OwnedFd; 3],
    /// The user's terminal.
    pub console: Option<OwnedFd>,
    /// Further descriptors for the container, numbered from 3.
    pub preserved: Vec<OwnedFd>,
    /// Files that overlays keep data in, in the order of [`Prepared::stores`].
    pub stores: Vec<OwnedFd>,
    /// The file that packets are written to.
    pub capture: Option<OwnedFd>,
    /// The file that takes what programs asked for and did not get.
    pub coverage: Option<OwnedFd>,
    /// Those of the sinks of its trace sessions.
    pub trace: Vec<OwnedFd>,
    /// The image of a checkpoint: the file of metadata, and that of pages.
    pub image: Vec<OwnedFd>,
    /// Leads to the process that writes changes of the root back.
    pub write_back: Option<OwnedFd>,
    /// Packet sockets for the interfaces of its network namespace.
    pub links: Vec<OwnedFd>,
    /// Files of the container's control group, in the specification's order.
    pub control_group: Vec<OwnedFd>,
}

/// What of the host a sandbox's processes hold.
pub struct HostHandles<'a> {
    /// The file with the lock that says that the container lives; pid 1 writes the exit status into it.
    pub alive: Option<BorrowedFd<'a>>,
    /// The file for a report of the sentry's death.
    pub crash: BorrowedFd<'a>,
    /// Control groups that each process of ours enters.
    pub groups: &'a Groups,
    /// Called with the ID of each process that has not entered them, before it runs anything: puts it there.
    pub joined: &'a mut dyn FnMut(i32) -> io::Result<()>,
    /// The network namespace that the container's processes on the host are in; a new one if none is given.
    pub network: Option<BorrowedFd<'a>>,
    /// What a network gofer is to be started with, if the sandbox is to have one.
    pub net_gofer: Option<NetGofer<'a>>,
}

/// A network gofer to be started.
pub struct NetGofer<'a> {
    /// What the sandbox may reach.
    pub setup: &'a netgofer::Setup,
    /// Its network namespace is the caller's, not that of the container's processes.
    pub outside: bool,
}

/// A started sandbox. Dropping it ends all its processes and waits for them, unless it was detached.
pub struct Sandbox {
    pub(crate) channel: Channel,
    pub(crate) init: Process,
    /// Ends with the sandbox.
    pub(crate) gofer: Process,
    /// Of host mode; and the sentry's end of its socket, until it is sent there.
    pub(crate) net_gofer: Option<Process>,
    pub(crate) net_end: Cell<Option<OwnedFd>>,
    pub(crate) life: Channel,
    /// Of a container in another one's sandbox: the sentry's end of its process's socket, until it is sent there.
    pub(crate) member: Option<Cell<Option<Channel>>>,
    /// What init is yet to be told to show.
    pub(crate) view: Cell<Option<View>>,
    pub(crate) view_state: Cell<ViewState>,
}

/// How far init is with the view that it shows to the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ViewState {
    #[default]
    Nothing,
    /// What to show.
    View,
    /// And it has said that it is confined.
    Confined,
}

/// Starts a sandbox's processes: in namespaces of their own, but with nothing to do yet. Called while the process
/// has one thread only: its children are killed when that thread ends.
pub fn launch(log: &Sink, mapping: Mapping, handles: HostHandles<'_>) -> io::Result<Sandbox> {
    let mut starter = Starter::new(log, mapping, (handles.groups, handles.joined))?;
    let (gofer, to_gofer) = starter.gofer()?;
    let (to_boot, boot_end) = Channel::pair()?;
    let (life, init_end) = Channel::pair()?;
    let (exe, null) = (starter.exe.try_clone()?, starter.null()?);
    let alive = handles.alive.unwrap_or(null.as_fd());
    let inherited = [boot_end.as_fd(), exe.as_fd(), to_gofer.as_fd(), init_end.as_fd(), alive, handles.crash];
    let init = in_network(handles.network, |namespaces| starter.start(role::INIT, &inherited, namespaces))?;
    let (net_gofer, net_end) = match &handles.net_gofer {
        Some(wanted) => {
            starter.net_gofer(wanted, init.child.pid).map(|(process, end)| (Some(process), Some(end)))?
        }
        None => (None, None),
    };
    Ok(Sandbox {
        channel: to_boot,
        init,
        gofer,
        net_gofer,
        net_end: Cell::new(net_end),
        life,
        member: None,
        view: Cell::default(),
        view_state: Cell::default(),
    })
}

/// Can be read when [`wait_ready`](Sandbox::wait_ready) has something to say.
impl AsFd for Sandbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Sandbox {
    /// Process id of the container as the host sees it.
    pub fn pid(&self) -> i32 {
        self.init.child.pid
    }

    /// Has the container set up. With `listener`, further connections are accepted on that socket.
    /// The sentry's answer is an event of its channel.
    pub fn set_up(
        &self,
        prepared: &Prepared,
        files: &Files,
        listener: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        if listener.is_some() {
            self.view.set(View::of(prepared));
        } else {
            self.show(None)?;
        }
        let spec = sealed(&serde_json::to_vec(&prepared.spec)?)?;
        let Some(to_gofer) = &self.gofer.channel else { return Err(io::ErrorKind::NotConnected.into()) };
        let fifos = prepared.spec.mounts.iter().any(|mount| mount.host_fifos);
        let wanted = gofer::Wanted {
            sockets: prepared.spec.host_uds,
            files: prepared.spec.through_gofer.then_some(gofer::Files { fifos }),
            opens: prepared.spec.opening_gofer.is_some(),
        };
        let trees = gofer::request(to_gofer, &prepared.trees, wanted, prepared.id_maps.is_some())?;
        let mut fds = vec![spec.as_fd()];
        fds.extend(trees.iter().map(AsFd::as_fd));
        let gofers = prepared.gofers.iter().map(connect).collect::<io::Result<Vec<_>>>()?;
        fds.extend(gofers.iter().map(AsFd::as_fd));
        match &files.console {
            Some(console) => fds.push(console.as_fd()),
            None => fds.extend(files.stdio.iter().map(AsFd::as_fd)),
        }
        let rest = files.preserved.iter().chain(&files.stores).chain(&files.write_back).chain(&files.capture);
        let rest = rest.chain(&files.coverage).chain(&files.trace).chain(&files.image);
        let rest = rest.chain(&files.control_group);
        fds.extend(rest.map(AsFd::as_fd));
        match (listener, self.member.as_ref().map(Cell::take)) {
            (Some(listener), Some(Some(end))) => {
                self.channel.send(&Request::Container, &[listener, end.as_fd()])?;
            }
            (Some(listener), None) => self.channel.send(&Request::Listen, &[listener])?,
            (None, None) => {}
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
        if let Some(end) = self.net_end.take() {
            self.channel.send(&Request::NetworkGofer, &[end.as_fd()])?;
        }
        if !files.links.is_empty() {
            let links: Vec<_> = files.links.iter().map(AsFd::as_fd).collect();
            self.channel.send(&Request::Links, &links)?;
        }
        let mut rest = fds.as_slice();
        while !rest.is_empty() {
            let (batch, tail) = rest.split_at(rest.len().min(MAX_FDS));
            rest = tail;
            self.channel.send(&Request::Descriptors { last: rest.is_empty() }, batch)?;
        }
        Ok(())
    }

    /// Has a sandbox of a pool, which is set up, build its container under this name. `image`: metadata and pages of the
    /// checkpoint to be restored, and the files of earlier ones that it names; nothing for a new container.
    pub fn take(&self, id: &str, stdio: &[OwnedFd; 3], image: &[OwnedFd], keep_tcp: bool) -> io::Result<()> {
        let fds: Vec<_> = stdio.iter().chain(image).map(AsFd::as_fd).collect();
        self.channel.send(&Request::Take { id: id.into(), keep_tcp }, &fds)
    }

    /// Has the sentry accept connections over this socket, of a sandbox that is not shown to the host otherwise. To be
    /// called before [`set_up`](Self::set_up), which gets none then.
    pub fn listen(&self, listener: BorrowedFd<'_>) -> io::Result<()> {
        self.channel.send(&Request::Listen, &[listener])
    }

    /// Lets the first process run, at once or as soon as it is set up.
    pub fn start(&self) -> io::Result<()> {
        // Guest code must not meet an init that is still setting itself up.
        self.confine_init(None)?;
        match self.channel.send(&Request::Start, &[]) {
            // It has said why it could not be set up; that is the next thing read.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            sent => sent,
        }
    }

    /// Lets the first process run, and waits until it does; the outer error is ours, the inner one the container's. Comes after
    /// [`wait_ready`](Sandbox::wait_ready).
    pub fn start_now(&self) -> io::Result<Result<(), StartError>> {
        self.start()?;
        match self.channel.recv()? {
            Some((Event::Started, _)) => Ok(Ok(())),
            Some((Event::Failed(error), _)) => Ok(Err(crate::shown(error))),
            Some(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "unexpected event")),
            None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the sandbox ended")),
        }
    }

    /// Tells init what to show, if it has not been told yet.
    fn show(&self, view: Option<View>) -> io::Result<()> {
        if self.view_state.get() == ViewState::Nothing {
            self.life.send(&LifeMessage::Show(view), &[])?;
            self.view_state.set(ViewState::View);
        }
        Ok(())
    }

    /// The same, then waits until it is confined.
    fn confine_init(&self, view: Option<View>) -> io::Result<()> {
        self.show(view)?;
        if self.view_state.get() == ViewState::View {
            match self.life.recv()? {
                Some((LifeMessage::Shown, _)) => self.view_state.set(ViewState::Confined),
                _ => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the sandbox's init ended")),
            }
        }
        Ok(())
    }

    /// Waits until the first process is set up; the outer error is ours, the inner one the container's.
    pub fn wait_ready(&mut self) -> io::Result<Result<(), StartError>> {
        let event = self.channel.recv()?;
        if !matches!(event, Some((Event::Ready, _))) {
            // There is nothing to show, but init waits to be told so.
            let _ = self.show(None);
        }
        match event {
            Some((Event::Ready, _)) => {
                // Now the container's kernel has made the places for the mounts.
                self.confine_init(self.view.take())?;
                Ok(Ok(()))
            }
            Some((Event::Failed(error), _)) => {
                // It ends by itself; what it held is free then.
                self.init.wait()?;
                Ok(Err(crate::shown(error)))
            }
            Some(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "unexpected event")),
            None => {
                let status = self.init.wait()?;
                if self.member.is_some() {
                    return Err(io::Error::other("the sandbox ended before the container was set up"));
                }
                Err(io::Error::other(format!(
                    "the sentry ended with status {status} before the container was set up"
                )))
            }
        }
    }

    /// Lets the sandbox outlive this process. One that has ended meanwhile has written down how.
    pub fn detach(mut self) -> io::Result<()> {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        match self.tell_to_outlive() {
            Err(error) if matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) => {
                self.init.wait()?;
            }
            told => told?,
        }
        self.gofer.kept = true;
        if let Some(net_gofer) = &mut self.net_gofer {
            net_gofer.kept = true;
        }
        self.init.kept = true;
        Ok(())
    }

    fn tell_to_outlive(&self) -> io::Result<()> {
        if let Some(to_gofer) = &self.gofer.channel {
            gofer::detach(to_gofer)?;
        }
        self.life.send(&LifeMessage::Detach, &[])?;
        match self.life.recv()? {
            Some((LifeMessage::Detached, _)) => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the sandbox ended")),
        }
    }
}

/// A connection to a gofer of others.
fn connect(gofer: &bundle::Gofer) -> io::Result<OwnedFd> {
    let path = gofer.socket.display();
    let told = |error: rustix::io::Errno| {
        let hint = match error {
            rustix::io::Errno::PROTOTYPE => " (it must be of type SOCK_SEQPACKET)",
            rustix::io::Errno::CONNREFUSED => " (no process listens on it)",
            _ => "",
        };
        io::Error::new(io::Error::from(error).kind(), format!("--gofer=unix:{path}: {error}{hint}"))
    };
    let is_socket = std::fs::metadata(&gofer.socket).map_or(true, |found| found.file_type().is_socket());
    if !is_socket {
        return Err(io::Error::other(format!("--gofer=unix:{path}: it is no socket")));
    }
    let address = SocketAddrUnix::new(&gofer.socket).map_err(told)?;
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).map_err(told)?;
    rustix::net::connect(&socket, &address).map_err(told)?;
    Ok(socket)
}

/// The arguments for a role's process, which say nothing about the container: the role, and the form of the log unless that is
/// text.
pub(crate) fn arguments(role: &str, format: Format) -> Vec<CString> {
    let mut args = vec![c"ringfence".into(), CString::new(role).unwrap_or_default()];
    if format == Format::Json {
        args.push(JSON.into());
    }
    args
}

/// How arguments say that the log has the JSON form.
const JSON: &CStr = c"json";

/// The form of the log that a role's process was started with.
pub fn format_of(args: impl Iterator<Item = String>) -> Format {
    let mut args = args.skip(2);
    if args.next().is_some_and(|word| JSON.to_bytes() == word.as_bytes()) {
        Format::Json
    } else {
        Format::Text
    }
}

/// Starts something from within a network namespace, and comes back. A process belongs to the namespace that its
/// parent was in when it is made; once in a user namespace of its own it could not enter one of the host's.
pub(crate) fn in_network<T>(
    network: Option<BorrowedFd<'_>>,
    start: impl FnOnce(Namespaces) -> io::Result<T>,
) -> io::Result<T> {
    let Some(network) = network else { return start(Namespaces::ALL) };
    let own = open("/proc/self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let enter = |fd| move_into_link_name_space(fd, Some(LinkNameSpaceType::Network));
    enter(network).map_err(|error| {
        io::Error::other(format!("cannot enter the container's network namespace: {error}"))
    })?;
    let started = start(Namespaces::ALL_BUT_NETWORK);
    match enter(own.as_fd()) {
        // A user that is root only in a namespace of its own may not go back to the host's network. Nothing that
        // follows needs it, except a hook, which then runs in the container's.
        Ok(()) | Err(rustix::io::Errno::PERM) => started,
        Err(error) => Err(error.into()),
    }
}

/// Starts our own executable again, in one role after another.
pub(crate) struct Starter<'a> {
    exe: OwnedFd,
    /// Standard input and output.
    null: OwnedFd,
    log: &'a Sink,
    mapping: Mapping,
    groups: &'a Groups,
    joined: &'a mut dyn FnMut(i32) -> io::Result<()>,
}

/// Says so when a guest process that crashes starts the host's core handler all the same: see `hostsys::spawn`.
fn warn_of_core_handler() {
    let may_raise =
        || capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_RESOURCE));
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.starts_with('|') && getrlimit(Resource::Core).maximum == Some(0) && !may_raise() {
        log::warn!(
            "the container's programs can start the host's core handler; allow a core limit of 1 (ulimit -Hc 1)"
        );
    }
    if pattern.starts_with('@') {
        log::info!(
            "the container's programs can have the host connect to its core server, {}",
            pattern.trim()
        );
    }
}

/// What to do about a host that does not make the namespaces of a new process.
fn advice(error: &io::Error) -> String {
    let setting = |name: &str| std::fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default();
    let is = |name: &str, value: &str| setting(name).trim() == value;
    match error.kind() {
        io::ErrorKind::PermissionDenied if is("kernel/apparmor_restrict_unprivileged_userns", "1") => {
            "; AppArmor restricts user namespaces here: set the sysctl kernel.apparmor_restrict_unprivileged_userns to 0, \
             or give this program a profile that allows userns"
                .into()
        }
        io::ErrorKind::PermissionDenied if is("kernel/unprivileged_userns_clone", "0") => {
            "; set the sysctl kernel.unprivileged_userns_clone to 1".into()
        }
        io::ErrorKind::PermissionDenied => {
            "; user namespaces are refused here, by the host or by a container around this one".into()
        }
        // clone(2) says so of the limits on namespaces.
        _ if error.raw_os_error() == Some(libc::ENOSPC) => {
            let all = ["user", "pid", "net", "ipc", "uts", "mnt", "cgroup"];
            let names = all.map(|kind| format!("user.max_{kind}_namespaces"));
            let none = names.iter().find(|name| is(&name.replace('.', "/"), "0"));
            match none {
                Some(name) => format!("; the host allows none: raise the sysctl {name}, which is 0"),
                None => format!("; the host allows no more: raise the sysctl {} or its likes", names[0]),
            }
        }
        _ => String::new(),
    }
}

impl<'a> Starter<'a> {
    pub(crate) fn new(
        log: &'a Sink,
        mapping: Mapping,
        (groups, joined): (&'a Groups, &'a mut dyn FnMut(i32) -> io::Result<()>),
    ) -> io::Result<Self> {
        warn_of_core_handler();
        let exe = openat(CWD, "/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| io::Error::other(format!("/proc/self/exe: {error}; mount proc on /proc")))?;
        let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { exe, null, log, mapping, groups, joined })
    }

    /// A descriptor of /dev/null.
    pub(crate) fn null(&self) -> io::Result<OwnedFd> {
        self.null.try_clone()
    }

    /// A gofer, and a second handle of the socket that it lives by.
    pub(crate) fn gofer(&mut self) -> io::Result<(Process, Channel)> {
        let (to_gofer, end) = Channel::pair()?;
        let process = self.start(role::GOFER, &[end.as_fd()], Namespaces::ALL)?;
        Ok((process.holding(to_gofer.try_clone()?), to_gofer))
    }

    /// A network gofer, and the sandbox's end of the socket that it lives by.
    fn net_gofer(&mut self, wanted: &NetGofer<'_>, init: i32) -> io::Result<(Process, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (own, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let setup = sealed(&wanted.setup.to_bytes()?)?;
        let inherited = [own.as_fd(), setup.as_fd()];
        let process = if wanted.outside {
            self.start(role::NET_GOFER, &inherited, Namespaces::ALL_BUT_NETWORK)?
        } else {
            let network = File::open(format!("/proc/{init}/ns/net"))?;
            let start = |namespaces| self.start(role::NET_GOFER, &inherited, namespaces);
            in_network(Some(network.as_fd()), start)?
        };
        Ok((process, theirs))
    }

    /// A process with `fds` as its descriptors from 3 on.
    pub(crate) fn start(
        &mut self,
        role: &str,
        fds: &[BorrowedFd<'_>],
        namespaces: Namespaces,
    ) -> io::Result<Process> {
        let base = [self.null.as_fd(), self.null.as_fd(), self.log.fd.as_fd()];
        let fds: Vec<_> = base.iter().chain(fds).copied().collect();
        let args = arguments(role, self.log.format);
        let (exe, groups) = (self.exe.as_fd(), self.groups);
        let program = Program { exe, args: &args, env: &[], fds: &fds, namespaces, groups };
        let Self { mapping, joined, .. } = self;
        let maps = |pid| if namespaces.has_user() { write_maps(pid, *mapping) } else { Ok(()) };
        let mut place = |pid, placed| if placed && !groups.is_empty() { Ok(()) } else { joined(pid) };
        match spawn(&program, |pid, placed| maps(pid).and_then(|()| place(pid, placed))) {
            Ok(child) => Ok(Process { child, channel: None, waited: None, signal: None, kept: false }),
            Err(error) => {
                let advice = advice(&error);
                let text = format!("cannot start the {role} process in new namespaces: {error}{advice}");
                Err(io::Error::other(text))
            }
        }
    }
}

/// What is written back to.
pub struct Destination<'a> {
    /// The root directory.
    pub root: &'a Path,
    /// Nothing that is mounted below is the container's.
    pub alone: bool,
    /// Devices, set-ID bits and capabilities of files are written back, too.
    pub privileged: bool,
    /// What is known of write-backs to it.
    pub proof: &'a Proof,
    /// Held by the process as long as it lives.
    pub alive: Option<BorrowedFd<'a>>,
    /// Ends the wait for what was interrupted before when it can be read.
    pub stop: Option<BorrowedFd<'a>>,
}

/// The process that writes back, and the sentry's end of its socket.
pub struct WriteBack {
    process: Process,
    /// What has become of one that was interrupted before.
    pub repaired: Repair,
    stream: Option<OwnedFd>,
}

impl WriteBack {
    /// Starts it. It lives as long as the other end of its socket is open.
    pub fn start(
        log: &Sink,
        mapping: Mapping,
        to: &Destination<'_>,
        joined: &mut dyn FnMut(i32) -> io::Result<()>,
    ) -> io::Result<WriteBack> {
        // It may have to be put there with systemd's help, which wants its ID; a start does not wait for it.
        let groups = Groups::default();
        let mut starter = Starter::new(log, mapping, (&groups, joined))?;
        let (channel, theirs) = Channel::pair()?;
        let flags = SocketFlags::CLOEXEC;
        let (stream, their_stream) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let null = starter.null()?;
        let alive = to.alive.unwrap_or(null.as_fd());
        let inherited = [theirs.as_fd(), their_stream.as_fd(), alive, to.proof.as_fd()];
        // A device cannot be made, nor a capability given to a file, in a user namespace of its own.
        let namespaces = match mapping {
            Mapping::Identity => Namespaces::ALL_BUT_USER,
            _ => Namespaces::ALL,
        };
        let process = starter.start(role::WRITE_BACK, &inherited, namespaces)?;
        drop((theirs, their_stream));
        let repaired = writeback::set_up(&channel, to.root, to.alone, to.privileged, to.stop)?;
        Ok(WriteBack { process, repaired, stream: Some(stream) })
    }

    /// The sentry's end, once.
    pub fn stream(&mut self) -> Option<OwnedFd> {
        self.stream.take()
    }

    /// Waits for its end, which comes with the sentry's.
    pub fn wait(mut self) {
        self.stream = None;
        if let Err(error) = self.process.wait() {
            log::warn!("write-back: {error}");
        }
    }

    /// Leaves the process to the sentry.
    pub fn keep(mut self) {
        self.process.kept = true;
    }
}

/// Starts a process that attends to a sink of a trace session. It outlives the caller, and ends with its socket.
pub fn start_trace_sink(socket: &OwnedFd, duty: &OwnedFd, files: &[OwnedFd]) -> io::Result<Child> {
    let exe = open("/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let args = arguments(role::TRACE_SINK, Format::Text);
    let mut fds = vec![null.as_fd(), null.as_fd(), null.as_fd(), socket.as_fd(), duty.as_fd()];
    fds.extend(files.iter().map(AsFd::as_fd));
    let (namespaces, groups) = (Namespaces::NONE, Groups::default());
    let program = Program { exe: exe.as_fd(), args: &args, env: &[], fds: &fds, namespaces, groups: &groups };
    spawn(&program, |_, _| Ok(()))
}

/// A memfd that can no longer change.
pub(crate) fn sealed(bytes: &[u8]) -> io::Result<OwnedFd> {
    let fd = memfd_create("spec", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    Ok(file.into())
}

/// A child of ours, killed and waited for when dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    /// Open for as long as the process is to live.
    channel: Option<Channel>,
    waited: Option<i32>,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
    /// Not ours to end any more.
    kept: bool,
}

impl Process {
    pub(crate) fn holding(mut self, channel: Channel) -> Self {
        self.channel = Some(channel);
        self
    }

    /// Waits for the end. The exit status, or 128 and the signal.
    pub(crate) fn wait(&mut self) -> io::Result<i32> {
        if let Some(status) = self.waited {
            return Ok(status);
        }
        loop {
            match waitid(WaitId::PidFd(self.child.pidfd.as_fd()), WaitIdOptions::EXITED) {
                Ok(status) => {
                    let code = status.as_ref().and_then(WaitIdStatus::exit_status);
                    let signal = status.as_ref().and_then(WaitIdStatus::terminating_signal);
                    let status = code.or(signal.map(|s| 128 + s)).unwrap_or(128);
                    self.waited = Some(status);
                    self.signal = signal;
                    return Ok(status);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.channel = None;
        if self.waited.is_none() && !self.kept {
            let _ = pidfd_send_signal(&self.child.pidfd, Signal::KILL);
            let _ = self.wait();
        }
    }
}
