//! /proc/PID/uid_map, gid_map, projid_map and setgroups: the IDs of a user namespace. See user_namespaces(7).

use abi::{Errno, Result};
use container::Container;
use kernfs::{At, line};
use rights::{Cap, Credentials};
use std::sync::Arc;
use user_ns::{IdMap, Ids, UserNamespace};

fn namespace(at: &At) -> Result<Arc<UserNamespace>> {
    // A descriptor reads it after the end of the process, too.
    let proc = at.proc.ok_or(Errno::ESRCH)?;
    let left = || proc.group.left.get().map(|left| left.user_ns.clone());
    let creds = proc.creds(at.kernel());
    creds.map(|creds| creds.user_ns.clone()).or_else(left).ok_or(Errno::ESRCH)
}

pub fn uid_map(at: &At) -> Result<Vec<u8>> {
    show(at, Ids::Users)
}

pub fn gid_map(at: &At) -> Result<Vec<u8>> {
    show(at, Ids::Groups)
}

pub fn projid_map(at: &At) -> Result<Vec<u8>> {
    show(at, Ids::Projects)
}

fn row((inside, outside, count): (u32, u32, u32)) -> String {
    format!("{inside:>10} {outside:>10} {count:>10}\n")
}

/// What lies outside is called as the reader's namespace has it, and as the parent has it in the namespace itself.
fn show(at: &At, ids: Ids) -> Result<Vec<u8>> {
    let ns = namespace(at)?;
    if ns.is_initial() {
        return of_container(&at.container(), ids);
    }
    let Some(map) = ns.map(ids) else { return Ok(Vec::new()) };
    let reader = at.opener()?.user_ns.clone();
    let seen_from = if reader == ns { ns.parent().cloned().unwrap_or(reader) } else { reader };
    let outside = |id: u32| match ids {
        Ids::Users => seen_from.user_here(id),
        Ids::Groups => seen_from.group_here(id),
        Ids::Projects => Some(id),
    };
    let lines = map.extents().iter().map(|e| row((e.first, outside(e.lower).unwrap_or(u32::MAX), e.count)));
    Ok(lines.collect::<String>().into_bytes())
}

/// The container's user namespace, as the configuration says; without ranges of its own every ID is itself.
fn of_container(container: &Container, ids: Ids) -> Result<Vec<u8>> {
    let ranges = container.id_map(ids == Ids::Groups);
    let all = [(0, 0, u32::MAX)];
    let ranges = match ids {
        // Projects are not mapped in a namespace of a container.
        Ids::Projects if !ranges.is_empty() => &[],
        _ if ranges.is_empty() => &all[..],
        _ => ranges,
    };
    Ok(ranges.iter().map(|range| row(*range)).collect::<String>().into_bytes())
}

pub fn set_uid_map(at: &At, data: &[u8]) -> Result<()> {
    set(at, Ids::Users, data)
}

pub fn set_gid_map(at: &At, data: &[u8]) -> Result<()> {
    set(at, Ids::Groups, data)
}

pub fn set_projid_map(at: &At, data: &[u8]) -> Result<()> {
    set(at, Ids::Projects, data)
}

/// The opener and the writer of the file both count, so that a privileged program cannot be made to write to a file
/// that was opened for it.
fn set(at: &At, ids: Ids, data: &[u8]) -> Result<()> {
    let (ns, writer, opener) = (namespace(at)?, at.cx()?.creds(), at.opener()?);
    let parent = ns.parent().ok_or(Errno::EPERM)?;
    let near = opener.user_ns == ns || opener.user_ns == *parent;
    if !near || ns.map(ids).is_some() {
        return Err(Errno::EPERM);
    }
    if ids != Ids::Projects && !opener.ns_capable(&ns, Cap::SYS_ADMIN) {
        return Err(Errno::EPERM);
    }
    let permitted = |map: &IdMap, setgroups: bool| permits(&ns, ids, map, setgroups, &writer, &opener);
    ns.set_map(ids, || IdMap::parse(data), permitted)?;
    // What its threads call themselves is answered without a call.
    at.kernel().tasks().iter().filter(|t| t.creds().user_ns == ns).for_each(|t| t.ids_mapped());
    Ok(())
}

/// The rules of user_namespaces(7), "Defining user and group ID mappings".
fn permits(
    ns: &UserNamespace,
    ids: Ids,
    map: &IdMap,
    setgroups: bool,
    writer: &Credentials,
    opener: &Credentials,
) -> bool {
    let Some(parent) = ns.parent() else { return false };
    if ids == Ids::Users && map.extents().iter().any(|e| e.lower == 0) {
        // User 0 of the parent could give files capabilities that count there.
        let may = match *opener.user_ns == *ns {
            true => ns.maker_had_setfcap(),
            false => opener.ns_capable(parent, Cap::SETFCAP),
        };
        if !may {
            return false;
        }
    }
    if let [e] = map.extents()
        && e.count == 1
        && ns.owner() == opener.euid
    {
        let own = match ids {
            Ids::Users => parent.user(e.lower) == Some(opener.euid),
            Ids::Groups => !setgroups && parent.group(e.lower) == Some(opener.egid),
            Ids::Projects => false,
        };
        if own {
            return true;
        }
    }
    let cap = match ids {
        Ids::Users => Cap::SETUID,
        Ids::Groups => Cap::SETGID,
        Ids::Projects => return true,
    };
    writer.ns_capable(parent, cap) && opener.ns_capable(parent, cap)
}

pub fn setgroups(at: &At) -> Result<Vec<u8>> {
    line(if namespace(at)?.setgroups_allowed() { "allow" } else { "deny" })
}

pub fn set_setgroups(at: &At, data: &[u8]) -> Result<()> {
    let ns = namespace(at)?;
    if !at.opener()?.ns_capable(&ns, Cap::SYS_ADMIN) {
        return Err(Errno::EACCES);
    }
    // Linux's buffer is eight bytes.
    if data.len() >= 8 {
        return Err(Errno::EINVAL);
    }
    let text = data.split(|&b| b == 0).next().unwrap_or_default();
    match text.trim_ascii_end() {
        b"allow" => ns.set_setgroups(true),
        b"deny" => ns.set_setgroups(false),
        _ => Err(Errno::EINVAL),
    }
}
