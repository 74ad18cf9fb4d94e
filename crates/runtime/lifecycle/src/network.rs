//! The host's network namespace of a container, and what the kernel inside is told of it.

use crate::Result;
use crate::state::Record;
use bundle::{Pod, Prepared};
use sandbox::client::Client;
use spec::Interfaces;
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

/// Tells the kernel inside what the network namespace holds by now, hooks having been run.
pub(crate) fn show(prepared: &mut Prepared, pid: i32) {
    let path = path(pid);
    match look(&path) {
        Ok(interfaces) => prepared.spec.interfaces = interfaces,
        Err(error) => log::warn!("the interfaces of {path} are not shown: {error}"),
    }
}

/// The same again before the start: Docker's newer daemons and `ctr --cni` set the network up between `create` and
/// `start`. Of a namespace that holds nothing but its loopback interface there is nothing to tell.
pub(crate) fn show_again(client: &Client, record: &Record) {
    let pid = record.state.pid;
    if matches!(record.pod(), Pod::Member(_)) || !netview::has_more_than_loopback(pid) {
        return;
    }
    warn_of_missing_stack();
    let path = path(pid);
    let told =
        look(&path).map_err(crate::Error::from).and_then(|interfaces| Ok(client.show_network(&interfaces)?));
    if let Err(error) = told {
        // An ordinary user may not look; what `create` has shown stays.
        log::debug!("the interfaces of {path} are not shown as they are now: {error}");
    }
}

/// A container with interfaces looks as if it could be reached, published ports included. Said to people only: Podman
/// hands on what `start` writes as what the program wrote.
pub(crate) fn warn_of_missing_stack() {
    let level = if io::stderr().is_terminal() { log::Level::Warn } else { log::Level::Debug };
    log::log!(
        level,
        "the container's network interfaces are shown, but there is no network stack yet: nothing connects through them"
    );
}

fn path(pid: i32) -> String {
    format!("/proc/{pid}/ns/net")
}

fn look(path: &str) -> io::Result<Interfaces> {
    netview::look(File::open(path)?.as_fd())
}
