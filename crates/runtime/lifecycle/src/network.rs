//! The host's network namespace of a container, and the description of it for the kernel inside.

use crate::record::Record;
use crate::{Result, Settings};
use bundle::{Namespace, Pod, Prepared};
use netgofer::{Policy, Setup};
use sandbox::client::Client;
use spec::{Interfaces, Network};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};

/// The network namespace that the configuration names.
pub(crate) fn named(prepared: &Prepared) -> Result<Option<OwnedFd>> {
    let Some(path) = prepared.namespaces.network.path() else { return Ok(None) };
    match File::open(path) {
        Ok(file) => Ok(Some(file.into())),
        Err(error) => Err(format!("network namespace {}: {error}", path.display()).into()),
    }
}

/// What a sandbox in host mode has outside.
pub(crate) struct Outward {
    /// What it may reach.
    pub(crate) setup: Setup,
    /// In the caller's network namespace.
    pub(crate) outside: bool,
}

/// The annotation that says what a container may reach, for clients that pass no flags.
const ALLOW_NET: &str = "dev.ringfence.allow-net";

impl Outward {
    /// For a container in host mode; nothing for one that is in none. Puts the policy and the namespace's interfaces into the specification.
    pub(crate) fn of(prepared: &mut Prepared, flag: Option<&Policy>) -> Result<Option<Outward>> {
        let annotation = prepared.annotations.get(ALLOW_NET);
        if !prepared.spec.network.is_host() {
            return match (flag, annotation) {
                (None, None) => Ok(None),
                (Some(_), _) => Err("--allow-net needs --network=host".into()),
                (None, Some(_)) => Err(format!("annotation {ALLOW_NET} needs --network=host").into()),
            };
        }
        let policy = match (flag, annotation) {
            (Some(_), Some(_)) => {
                return Err(format!("--allow-net and the annotation {ALLOW_NET} exclude each other").into());
            }
            (None, Some(text)) => {
                let parsed = text.parse::<Policy>();
                Some(parsed.map_err(|error| format!("annotation {ALLOW_NET}: {error}"))?)
            }
            (flag, None) => flag.cloned(),
        };
        prepared.spec.network = Network::Host { policed: policy.is_some() };
        let outside = prepared.namespaces.network == Namespace::Host;
        let mut own = Vec::new();
        if outside || policy.is_some() {
            match host_interfaces::look_here() {
                Ok(interfaces) => {
                    own = interfaces.links.iter().flat_map(|l| &l.addresses).map(|(ip, _)| *ip).collect();
                    if outside {
                        prepared.spec.interfaces = interfaces;
                    }
                }
                // What counts as the host's own must be known.
                Err(error) if policy.is_some() => {
                    return Err(format!("--allow-net: cannot read the host's addresses: {error}").into());
                }
                Err(error) => log::warn!("the host's network interfaces are not shown: {error}"),
            }
        }
        Ok(Some(Outward { setup: Setup::of_host(policy, own), outside }))
    }
}

/// Tells the kernel inside what the network namespace holds by now, hooks having been run; gives the handles with which it uses the
/// interfaces and follows their changes. Fails if another sandbox or another program uses them.
pub(crate) fn show(prepared: &mut Prepared, pid: i32) -> Result<Vec<OwnedFd>> {
    let (interfaces, handles) = match look(prepared.spec.network, pid) {
        Ok(found) => found,
        Err(error) if is_taken(&error) => return Err(taken(&error)),
        Err(error) => {
            log::warn!("the interfaces of {} are not shown: {error}", path(pid));
            return Ok(Vec::new());
        }
    };
    prepared.spec.interfaces = interfaces;
    Ok(handles)
}

/// The same again before the start, in host mode: Docker's newer daemons and `ctr --cni` set the network up between `create` and
/// `start`. The stack inside follows by itself. Of a namespace that holds nothing but its loopback interface there is nothing to tell.
pub(crate) fn show_again(settings: &Settings, client: &Client, record: &Record) {
    let (pid, network) = (record.state.pid, settings.containers.network);
    let member = matches!(record.pod(), Pod::Member(_));
    if member || !network.is_host() || !host_interfaces::has_more_than_loopback(pid) {
        return;
    }
    let found = look(network, pid).map_err(crate::Error::from);
    if let Err(error) = found.and_then(|(interfaces, _)| Ok(client.show_network(&interfaces)?)) {
        // An ordinary user may not look; what `create` has shown stays.
        log::debug!("the interfaces of {} are not shown as they are now: {error}", path(pid));
    }
}

/// Whether a namespace belongs to others.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::ResourceBusy)
}

/// Two stacks would reset each other's connections.
fn taken(error: &io::Error) -> crate::Error {
    let owner = match error.kind() {
        io::ErrorKind::AddrInUse => "another sandbox's, which is not in this --root directory".to_string(),
        _ => format!("in use ({error})"),
    };
    format!(
        "the network namespace is {owner}: two network stacks would break each other's connections; use the same --root, \
         --network=none, or a network namespace of its own"
    )
    .into()
}

/// What a namespace holds, and the handles for the stack inside that is to use it.
fn look(network: Network, pid: i32) -> io::Result<(Interfaces, Vec<OwnedFd>)> {
    let namespace = File::open(path(pid))?;
    match network {
        Network::None => Ok((Interfaces::loopback(), Vec::new())),
        Network::Host { .. } => Ok((host_interfaces::look(namespace.as_fd())?, Vec::new())),
        Network::Sandbox => match host_interfaces::take_over(namespace.as_fd(), pid) {
            Ok((interfaces, handles)) => Ok((interfaces, handles.into_fds())),
            Err(error) if is_taken(&error) => Err(error),
            Err(error) => {
                let shown = host_interfaces::look(namespace.as_fd())?;
                if shown.links.len() > 1 {
                    warn_of_unused(&error);
                }
                Ok((shown, Vec::new()))
            }
        },
    }
}

/// A container with interfaces looks as if it could be reached, published ports included. Said to people only: Podman
/// hands on what `start` writes as what the program wrote.
fn warn_of_unused(error: &io::Error) {
    let level = if io::stderr().is_terminal() { log::Level::Warn } else { log::Level::Debug };
    log::log!(
        level,
        "the container's network interfaces are shown, but nothing connects through them: {error}; --network=host uses the host's sockets"
    );
}

fn path(pid: i32) -> String {
    format!("/proc/{pid}/ns/net")
}
