//! The parameters of a network gofer.

use crate::policy::Policy;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::IpAddr;
use std::os::fd::OwnedFd;

/// Most bytes of a file that is read.
const LONGEST: u64 = 4 << 20;
/// Most name servers, as resolv.conf(5) has it, and lines of a file of hosts.
const MAX_SERVERS: usize = 3;
const MAX_HOSTS: usize = 65536;

/// What a sandbox may reach, and how names are resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// What may be reached; everything if there is none.
    pub policy: Option<Policy>,
    /// The host's name servers.
    pub nameservers: Vec<IpAddr>,
    /// The host's names without a name server.
    pub hosts: Vec<(String, IpAddr)>,
    /// Addresses of the host's interfaces, where the sandbox was started. The gofer's own namespace may be another one.
    pub own: Vec<IpAddr>,
}

impl Setup {
    /// With that policy and the name service of this host, which has the addresses `own`.
    pub fn of_host(policy: Option<Policy>, own: Vec<IpAddr>) -> Setup {
        if policy.is_none() {
            return Setup::default();
        }
        let read = |path: &str| {
            let mut text = Vec::new();
            let read = File::open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut text));
            if let Err(error) = read {
                log::debug!("{path}: {error}");
            }
            String::from_utf8_lossy(&text).into_owned()
        };
        let (servers, hosts) = (read("/etc/resolv.conf"), read("/etc/hosts"));
        Setup { policy, nameservers: nameservers(&servers), hosts: listed(&hosts), own }
    }

    /// From what [`to_bytes`](Self::to_bytes) gave.
    pub(crate) fn read(file: OwnedFd) -> io::Result<Setup> {
        let (mut file, mut text) = (File::from(file), Vec::new());
        file.rewind()?;
        file.take(4 * LONGEST).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// For the network gofer.
    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }
}

/// The name servers of a resolv.conf(5); without one there is the host's own.
fn nameservers(text: &str) -> Vec<IpAddr> {
    let lines = text.lines().map(str::split_whitespace);
    let named = lines.filter_map(|mut words| match words.next() {
        Some("nameserver") => words.next()?.split('%').next()?.parse().ok(),
        _ => None,
    });
    let servers: Vec<IpAddr> = named.take(MAX_SERVERS).collect();
    if servers.is_empty() { vec![IpAddr::from([127, 0, 0, 1])] } else { servers }
}

/// The names of a hosts(5).
fn listed(text: &str) -> Vec<(String, IpAddr)> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(Ok(ip)) = words.next().map(str::parse::<IpAddr>) else { continue };
        found.extend(words.map(|name| (name.trim_end_matches('.').to_ascii_lowercase(), ip)));
        if found.len() >= MAX_HOSTS {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_files() {
        let servers =
            nameservers("# x\nnameserver 10.0.0.1\noptions a\nnameserver fe80::1%eth0\nnameserver x\n");
        assert_eq!(servers, ["10.0.0.1".parse::<IpAddr>().unwrap(), "fe80::1".parse().unwrap()]);
        assert_eq!(nameservers(""), ["127.0.0.1".parse::<IpAddr>().unwrap()]);
        let hosts = listed("127.0.0.1\tlocalhost Loop. # x\n#1.2.3.4 no\n::1 ip6\nbad line\n");
        let names: Vec<&str> = hosts.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["localhost", "loop", "ip6"]);
    }
}
