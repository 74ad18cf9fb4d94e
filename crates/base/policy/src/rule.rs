//! A rule: points, conditions, an action.

use crate::address::{Address, AddressPattern};
use crate::glob::{Glob, Pattern};
use crate::point::{Access, Facts, Kind, Point};
use crate::ranges::Ranges;
use abi::Errno;
use bitflags::bitflags;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The call goes on.
    Allow,
    /// The call goes on, and the decision is recorded.
    Log,
    /// The call fails.
    Deny(Errno),
    /// The process ends as by SIGKILL.
    KillProcess,
    /// All processes of the container end.
    KillContainer,
    /// The container's processes stop, so that they can be looked at.
    Freeze,
    /// A program outside decides: [`crate::Policy::ask`].
    Ask,
}

impl Action {
    /// Names in rules.
    pub const NAMES: [&'static str; 7] =
        ["allow", "log", "deny", "kill-process", "kill-container", "freeze", "ask"];

    /// The name in rules.
    pub const fn name(self) -> &'static str {
        match self {
            Action::Allow => "allow",
            Action::Log => "log",
            Action::Deny(_) => "deny",
            Action::KillProcess => "kill-process",
            Action::KillContainer => "kill-container",
            Action::Freeze => "freeze",
            Action::Ask => "ask",
        }
    }

    /// True when the call may not go on, or not at once.
    pub const fn refuses(self) -> bool {
        !matches!(self, Action::Allow | Action::Log)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if let Action::Deny(errno) = self {
            write!(f, " {}", errno.name())?;
        }
        Ok(())
    }
}

/// How a program outside is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// A Unix socket at which the program listens.
    pub socket: PathBuf,
    /// How long the answer may take.
    pub timeout: Duration,
    /// What holds without an answer.
    pub default: Action,
}

bitflags! {
    /// Protocols of sockets.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Protocol: u16 {
        /// TCP.
        const TCP = 1;
        /// UDP and UDP-Lite.
        const UDP = 1 << 1;
        /// Ping sockets (SOCK_DGRAM with IPPROTO_ICMP or IPPROTO_ICMPV6).
        const ICMP = 1 << 2;
        /// Raw sockets of IP.
        const RAW = 1 << 3;
        /// Unix sockets of all types.
        const UNIX = 1 << 4;
        /// Netlink.
        const NETLINK = 1 << 5;
        /// Packet sockets.
        const PACKET = 1 << 6;
        /// All others.
        const OTHER = 1 << 7;
    }
}

/// A test of an argument in a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Register {
    pub(crate) index: u8,
    pub(crate) mask: u64,
    pub(crate) values: Ranges,
}

/// What must hold for a rule to match. All of it must.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    pub(crate) path: Option<Vec<Pattern>>,
    pub(crate) path_not: Vec<Pattern>,
    pub(crate) executable: Option<Vec<Pattern>>,
    pub(crate) executable_not: Vec<Pattern>,
    pub(crate) executable_sha256: Option<Vec<[u8; 32]>>,
    pub(crate) file_sha256: Option<Vec<[u8; 32]>>,
    pub(crate) uid: Option<Ranges>,
    pub(crate) uid_not: Option<Ranges>,
    pub(crate) gid: Option<Ranges>,
    pub(crate) gid_not: Option<Ranges>,
    pub(crate) address: Option<Vec<AddressPattern>>,
    pub(crate) address_not: Vec<AddressPattern>,
    pub(crate) protocol: Option<Protocol>,
    /// Each of them must match one of the arguments.
    pub(crate) arguments: Vec<(String, Glob)>,
    pub(crate) access: Option<Access>,
    pub(crate) container: Option<Vec<(String, Glob)>>,
    pub(crate) new_in_layer: Option<bool>,
    pub(crate) to_root: Option<bool>,
    pub(crate) registers: Vec<Register>,
}

/// One place at which a rule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) point: Point,
    /// Only when this call leads to the operation.
    pub(crate) call: Option<u16>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Where it begins.
    pub line: u32,
    /// The points as they are written.
    pub points: Vec<String>,
    /// What happens.
    pub action: Action,
    /// Decide and record, never act.
    pub dry_run: bool,
    /// How to ask, for [`Action::Ask`].
    pub ask: Option<Ask>,
    pub(crate) targets: Vec<Target>,
    pub(crate) when: Conditions,
}

/// What a process is about to do. The bytes are copies or objects of the kernel, which the process cannot change.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// Which operation, or which call.
    pub point: Point,
    /// The number of the system call that leads here.
    pub call: Option<u16>,
    /// The arguments of that call, as they were in the registers.
    pub args: [u64; 6],
    /// The object's path from the container's root, through the mounts that were walked; the last one of a removed
    /// file; nothing for an object without a place (pipes, sockets, memfd_create). The source of a link, rename or bind
    /// mount.
    pub path: Option<&'a [u8]>,
    /// The new path of a link or rename; the mount point of a bind mount or moved mount.
    pub second_path: Option<&'a [u8]>,
    /// The object of `path` is a directory.
    pub directory: bool,
    /// The object was made in the writable layer.
    pub new_in_layer: bool,
    /// How a file is opened or mapped.
    pub access: Access,
    /// Digest of the file that is executed.
    pub file_sha256: Option<&'a [u8; 32]>,
    /// Arguments of the program that is executed, each with a zero byte behind it.
    pub arguments: &'a [u8],
    /// Path of the caller's program; nothing when it has no place.
    pub executable: Option<&'a [u8]>,
    /// Digest of the caller's program.
    pub executable_sha256: Option<&'a [u8; 32]>,
    /// Effective user ID of the caller, as the container sees it.
    pub uid: u32,
    /// Effective group ID of the caller, as the container sees it.
    pub gid: u32,
    /// Name of the container.
    pub container: &'a str,
    /// The address that is bound, connected to, listened at, or of the peer.
    pub address: Option<Address<'a>>,
    /// Protocol of the socket.
    pub protocol: Protocol,
    /// One of the new IDs is 0.
    pub to_root: bool,
}

impl<'a> Operation<'a> {
    /// An operation about which nothing is known yet.
    pub fn new(point: Point) -> Operation<'a> {
        Operation {
            point,
            call: None,
            args: [0; 6],
            path: None,
            second_path: None,
            directory: false,
            new_in_layer: false,
            access: Access::empty(),
            file_sha256: None,
            arguments: b"",
            executable: None,
            executable_sha256: None,
            uid: 0,
            gid: 0,
            container: "",
            address: None,
            protocol: Protocol::empty(),
            to_root: false,
        }
    }
}

impl Conditions {
    /// What they look at.
    pub(crate) fn facts(&self) -> Facts {
        let mut facts = Facts::empty();
        let mut add = |used: bool, fact| facts |= if used { fact } else { Facts::empty() };
        add(self.path.is_some() || !self.path_not.is_empty(), Facts::PATH);
        add(self.executable.is_some() || !self.executable_not.is_empty(), Facts::EXECUTABLE);
        add(self.executable_sha256.is_some(), Facts::EXECUTABLE_SHA256);
        add(self.file_sha256.is_some(), Facts::FILE_SHA256);
        add([&self.uid, &self.uid_not, &self.gid, &self.gid_not].iter().any(|ids| ids.is_some()), Facts::IDS);
        add(self.address.is_some() || !self.address_not.is_empty(), Facts::ADDRESS);
        add(self.protocol.is_some(), Facts::PROTOCOL);
        add(!self.arguments.is_empty(), Facts::ARGUMENTS);
        add(self.access.is_some(), Facts::ACCESS);
        add(self.container.is_some(), Facts::CONTAINER);
        add(self.new_in_layer.is_some(), Facts::NEW_IN_LAYER);
        add(self.to_root.is_some(), Facts::TO_ROOT);
        add(!self.registers.is_empty(), Facts::REGISTERS);
        facts
    }

    /// True when all hold. A condition on what the operation does not have does not hold; an exception to it neither.
    pub(crate) fn hold(&self, of: &Operation<'_>) -> bool {
        self.access.is_none_or(|access| access.intersects(of.access))
            && self.protocol.is_none_or(|protocol| protocol.intersects(of.protocol))
            && self.new_in_layer.is_none_or(|new| new == of.new_in_layer)
            && self.to_root.is_none_or(|to_root| to_root == of.to_root)
            && self.registers.iter().all(|register| {
                of.args
                    .get(usize::from(register.index))
                    .is_some_and(|arg| register.values.has(arg & register.mask))
            })
            && self.caller_holds(of)
            && self.paths_hold(of)
            && self.address_holds(of.address)
            && digest_holds(&self.file_sha256, of.file_sha256)
            && self
                .arguments
                .iter()
                .all(|(_, glob)| arguments(of.arguments).any(|argument| glob.matches(argument)))
    }

    /// The conditions on the process that calls.
    pub(crate) fn caller_holds(&self, of: &Operation<'_>) -> bool {
        let ids = |only: &Option<Ranges>, not: &Option<Ranges>, id: u32| {
            only.as_ref().is_none_or(|only| only.has(id.into()))
                && !not.as_ref().is_some_and(|not| not.has(id.into()))
        };
        ids(&self.uid, &self.uid_not, of.uid)
            && ids(&self.gid, &self.gid_not, of.gid)
            && text_holds(self.executable.as_deref(), &self.executable_not, of.executable)
            && digest_holds(&self.executable_sha256, of.executable_sha256)
            && self
                .container
                .as_ref()
                .is_none_or(|names| names.iter().any(|(_, glob)| glob.matches(of.container.as_bytes())))
    }

    /// One of the two paths is enough.
    fn paths_hold(&self, of: &Operation<'_>) -> bool {
        self.path_holds(of.path) || (of.second_path.is_some() && self.path_holds(of.second_path))
    }

    /// The conditions on one path.
    pub(crate) fn path_holds(&self, path: Option<&[u8]>) -> bool {
        text_holds(self.path.as_deref(), &self.path_not, path)
    }

    fn address_holds(&self, address: Option<Address<'_>>) -> bool {
        let is = |pattern: &AddressPattern| address.is_some_and(|address| pattern.matches(address));
        self.address.as_ref().is_none_or(|only| only.iter().any(is)) && !self.address_not.iter().any(is)
    }

    /// The Unix sockets in directories that the addresses name, as paths. Nothing when there is none.
    pub(crate) fn socket_places(&self) -> Option<Conditions> {
        let paths = |patterns: &[AddressPattern]| patterns.iter().filter_map(|p| p.path().cloned()).collect();
        let path: Vec<Pattern> = paths(self.address.as_deref()?);
        let path_not = paths(&self.address_not);
        (!path.is_empty()).then(|| Conditions { path: Some(path), path_not, ..Conditions::default() })
    }

    /// True when the conditions are about more than a place and the caller: then an `allow` says nothing about other
    /// ways to the place.
    pub(crate) fn narrow(&self) -> bool {
        self.facts().intersects(!(Facts::PATH | Facts::CALLER))
    }

    /// True when a place that the conditions name would get a name that they do not name.
    ///
    /// For a directory, that is so when a path below it matches and would not match afterwards.
    pub(crate) fn escapes(&self, kind: Kind, of: &Operation<'_>) -> bool {
        let Some(from) = of.path else { return false };
        if !of.directory {
            return self.path_holds(Some(from))
                && (kind == Kind::FileLink || !self.path_holds(of.second_path));
        }
        let to = of.second_path.unwrap_or_default();
        if self.path_not.iter().any(|pattern| pattern.accepts_below(pattern.positions(from))) {
            return false;
        }
        match &self.path {
            // Everything but the exceptions: an exception may lie at the new place.
            None => self.path_not.iter().any(|not| !not.positions(to).within(not.positions(from))),
            Some(patterns) => patterns.iter().any(|pattern| {
                !pattern.positions(from).within(pattern.positions(to))
                    || (!pattern.positions(from).is_empty()
                        && self.path_not.iter().any(|not| !not.positions(to).within(not.positions(from))))
            }),
        }
    }
}

fn text_holds(only: Option<&[Pattern]>, not: &[Pattern], path: Option<&[u8]>) -> bool {
    let is = |pattern: &Pattern| path.is_some_and(|path| pattern.matches(path));
    only.is_none_or(|only| only.iter().any(is)) && !not.iter().any(is)
}

fn digest_holds(only: &Option<Vec<[u8; 32]>>, digest: Option<&[u8; 32]>) -> bool {
    only.as_ref().is_none_or(|only| digest.is_some_and(|digest| only.contains(digest)))
}

/// The arguments of a block in which each has a zero byte behind it.
fn arguments(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    let some = !block.is_empty();
    block.strip_suffix(b"\0").unwrap_or(block).split(|byte| *byte == 0).filter(move |_| some)
}
