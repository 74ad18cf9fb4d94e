//! `linux.sysctl`: parameters of namespaces that the configuration gives the container.
//!
//! The container has namespaces of its own in any case. Still, a configuration that asks for the host's namespace and
//! sets a parameter there is refused, with runc's words: with runc it would change the host.

use crate::namespaces::{Namespace, Namespaces};
use crate::{Result, fail};
use oci_spec::runtime::Linux;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Parameters of an ipc namespace; of fs.mqueue all are.
const IPC: [&str; 8] = [
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
];

/// The parameters by name, beside the configuration's `domainname`.
pub(crate) fn translate(
    linux: &Linux,
    namespaces: &Namespaces,
    domain: &str,
) -> Result<Vec<(String, String)>> {
    let mut all: Vec<(String, String)> = linux.sysctl().clone().into_iter().flatten().collect();
    all.sort();
    for (name, value) in &all {
        check(name, namespaces)?;
        if dotted(name) == "kernel.domainname" && !domain.is_empty() && domain != value {
            fail!(
                "sysctl {name:?} is {value:?}, which conflicts with the OCI \"domainname\" field ({domain:?})"
            );
        }
    }
    Ok(all)
}

fn check(name: &str, namespaces: &Namespaces) -> Result<()> {
    let dotted = dotted(name);
    let dotted = dotted.as_str();
    if dotted == "kernel.hostname" && namespaces.uts != Namespace::Host {
        fail!("sysctl {name:?} is not allowed as it conflicts with the OCI \"hostname\" field");
    }
    if matches!(dotted, "kernel.hostname" | "kernel.domainname") && namespaces.uts == Namespace::Host {
        fail!("sysctl {name:?} is not allowed in the host's uts namespace");
    }
    let of_ipc = IPC.contains(&dotted) || dotted.starts_with("fs.mqueue.");
    if of_ipc && namespaces.ipc == Namespace::Host {
        fail!("sysctl {name:?} is not allowed in the host's ipc namespace");
    }
    if dotted.starts_with("net.") && is_host(&namespaces.network) {
        fail!("sysctl {name:?} is not allowed in the host's network namespace");
    }
    Ok(())
}

/// With dots between the parts, whichever of dots and slashes comes first.
fn dotted(name: &str) -> String {
    let swap = |c| match c {
        '/' => '.',
        '.' => '/',
        c => c,
    };
    match name.find(['.', '/']) {
        Some(at) if name[at..].starts_with('/') => name.chars().map(swap).collect(),
        _ => name.into(),
    }
}

/// Whether it is the caller's own network namespace.
fn is_host(network: &Namespace) -> bool {
    let of = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    match network {
        Namespace::Host => true,
        Namespace::New => false,
        Namespace::Path(path) => of(path).is_some_and(|id| of(Path::new("/proc/self/ns/net")) == Some(id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_needed() {
        let none = Namespaces::default();
        let own = Namespaces {
            ipc: Namespace::New,
            network: Namespace::New,
            uts: Namespace::New,
            ..Namespaces::default()
        };
        for name in ["kernel.sem", "fs/mqueue/msg_max", "net.ipv4.ip_forward", "kernel/domainname"] {
            assert!(check(name, &none).unwrap_err().0.contains("is not allowed in the host's"), "{name}");
            assert_eq!(check(name, &own), Ok(()), "{name}");
        }
        assert!(check("kernel.hostname", &own).unwrap_err().0.contains("conflicts"));
        assert_eq!(check("kernel.pid_max", &none), Ok(()));
        let host = Namespaces { network: Namespace::Path("/proc/self/ns/net".into()), ..own };
        assert!(check("net.core.somaxconn", &host).is_err());
        assert_eq!(dotted("net/ipv4/conf/eth0.1/forwarding"), "net.ipv4.conf.eth0/1.forwarding");
    }
}
