//! rtnetlink(7): what a network namespace of the host has, and requests to change it.

use crate::netlink::Netlink;
use crate::parse::{self, IFADDR, IFINFO, NDMSG, RTMSG};
use netlink_wire::Message;
use spec::Interfaces;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A socket of rtnetlink(7). It belongs to the network namespace that the thread was in that made it.
#[derive(Debug)]
pub struct Rtnetlink(Netlink);

impl AsFd for Rtnetlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Rtnetlink {
    fn from(fd: OwnedFd) -> Rtnetlink {
        Rtnetlink(fd.into())
    }
}

impl From<Rtnetlink> for OwnedFd {
    fn from(socket: Rtnetlink) -> OwnedFd {
        socket.0.into()
    }
}

impl Rtnetlink {
    /// In the caller's network namespace.
    pub fn new() -> io::Result<Rtnetlink> {
        Netlink::new(None).map(Rtnetlink)
    }

    /// The interfaces, addresses, routes and permanent neighbours of its namespace, with a loopback interface that is up in any
    /// case: the one inside is the kernel's own.
    pub fn interfaces(&self) -> io::Result<Interfaces> {
        let links = self.ask(libc::RTM_GETLINK, &[0; IFINFO])?;
        let addresses = self.ask(libc::RTM_GETADDR, &[0; IFADDR])?;
        let neighbours = self.ask(libc::RTM_GETNEIGH, &[0; NDMSG])?;
        let mut routes = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let mut request = [0; RTMSG];
            request[0] = family as u8;
            routes.extend(self.ask(libc::RTM_GETROUTE, &request)?);
        }
        Ok(parse::gather(&links, &addresses, &routes, &neighbours))
    }

    /// All answers to a request for a list. `fixed` is its fixed part.
    pub(crate) fn ask(&self, kind: u16, fixed: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        self.0.ask(kind, fixed)
    }

    /// Has the host's kernel carry a request out, which has to ask for an acknowledgement.
    pub(crate) fn request(&self, request: Message) -> io::Result<()> {
        self.0.request(request)
    }
}
