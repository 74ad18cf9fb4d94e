//! The network gofer: the process that makes the host's sockets for a sandbox in host mode.
//!
//! The sentry may not call socket(2), connect(2) or bind(2). This process is outside the sandbox, in the network
//! namespace that the sandbox is to use. It makes these calls after checking a policy and passes the descriptor to the
//! sentry. Data then move without it. It has no file system and no capability, runs under its own seccomp filter, and
//! ends when the sandbox closes its end of the socket. It does not trust the sandbox: a message that is no request ends
//! the gofer.
//!
//! The policy applies to every datagram. The sentry's filter lets the sentry send to a socket's peer only, so a
//! datagram with a destination of its own is sent here. Questions to name servers that the policy does not name are
//! answered here as well, from answers of the host's name servers. The addresses in such an answer are those that the
//! entries with that name allow.
//!
//! [`Setup`] says what a sandbox may do, [`serve`] does it.

#![forbid(unsafe_code)]

mod dns;
mod filter;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod journal;
mod policy;
mod private;
mod resolver;
mod server;
mod setup;

pub use policy::{Names, Policy};
pub use setup::Setup;

use confine::{privileges, root};
use private::Own;
use resolver::Resolver;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::CapabilitySet;
use server::Server;
use std::io;
use std::os::fd::OwnedFd;

/// Descriptors for other things than a sandbox's sockets: questions, pairs, the channel.
const RESERVED: u64 = 512;
/// Most sockets of a sandbox, whatever the host's limit.
const MOST: u64 = 1 << 20;

/// Runs the network gofer until the other end of `channel` is closed. `setup` is a file that holds a [`Setup`]. The process is
/// single-threaded and in namespaces of its own, save for the network's.
pub fn serve(channel: OwnedFd, setup: OwnedFd) -> io::Result<()> {
    rustix::process::setsid().ok();
    let setup = Setup::read(setup)?;
    let most = raise_descriptor_limit();
    let own = Own::here(setup.own.clone())?;
    root::enter_empty()?;
    privileges::keep_only(CapabilitySet::empty())?;
    privileges::undumpable()?;
    confine::filter::install(&confine::filter::compile(&[confine::filter::RUST_RUNTIME, filter::RULES])?)?;
    hostsys::heap::shrink();
    hostsys::image::forget_start();
    let Setup { policy, nameservers, hosts, own: _ } = setup;
    let names: Vec<&str> = policy.iter().flat_map(Policy::whole_names).collect();
    // The file of hosts matters for names of the policy only.
    let hosts =
        hosts.into_iter().filter(|(name, _)| policy.as_ref().is_some_and(|p| p.names(name))).collect();
    let resolver = Resolver::new(nameservers, hosts, &names, own);
    Server::new(channel, policy.clone(), resolver, most).run()
}

/// How many sockets there is room for then.
fn raise_descriptor_limit() -> usize {
    let hard = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard });
    let room = hard.unwrap_or(MOST).min(MOST);
    usize::try_from(room.saturating_sub(RESERVED).max(room / 2)).unwrap_or(usize::MAX)
}
