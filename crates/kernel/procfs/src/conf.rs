//! /proc/sys/net/ipv4/conf and /proc/sys/net/ipv6/conf: settings of the interfaces of the caller's network namespace.

use abi::{Errno, Result};
use kernfs::{At, Child, Entry, Names, What, line, parse_int};
use netstack::conf::{Which, Whose};
use rights::Cap;
use vfs::Caller;

/// The directory.
pub(crate) static DIR: Entry = Entry { name: "conf", mode: 0o555, what: What::Dir(&[], Some(&Links)) };
static LINK: Entry = Entry { name: "d", mode: 0o555, what: What::Dir(&SETTINGS, None) };
static SETTINGS: [Entry; 17] = [
    setting("accept_local", |_| line(1), |at, value| refuse(at, value, 1)),
    setting("accept_redirects", |_| line(0), |at, value| refuse(at, value, 0)),
    setting("accept_source_route", |_| line(0), |at, value| refuse(at, value, 0)),
    setting("arp_accept", |_| line(0), |at, value| refuse(at, value, 0)),
    setting("arp_announce", |_| line(0), |at, value| refuse(at, value, 0)),
    setting("arp_filter", |_| line(0), |at, value| refuse(at, value, 0)),
    setting("arp_ignore", |_| line(0), |at, value| refuse(at, value, 0)),
    setting("arp_notify", |_| line(0), |at, value| refuse(at, value, 0)),
    setting("forwarding", |at| read(at, Which::Forwarding), |at, value| write(at, Which::Forwarding, value)),
    setting(
        "route_localnet",
        |at| read(at, Which::RouteLocalnet),
        |at, value| write(at, Which::RouteLocalnet, value),
    ),
    setting("rp_filter", |at| read(at, Which::RpFilter), |at, value| write(at, Which::RpFilter, value)),
    setting("log_martians", |_| line(0), |at, value| refuse(at, value, 0)),
    setting("proxy_arp", |_| line(0), |at, value| refuse(at, value, 0)),
    setting("secure_redirects", |_| line(0), |at, value| refuse(at, value, 0)),
    setting("send_redirects", |_| line(0), |at, value| refuse(at, value, 0)),
    setting("src_valid_mark", |_| line(1), |at, value| refuse(at, value, 1)),
    setting("tag", |at| read(at, Which::Tag), |at, value| write(at, Which::Tag, value)),
];
/// The directory for IPv6.
pub(crate) static DIR6: Entry = Entry { name: "conf", mode: 0o555, what: What::Dir(&[], Some(&Links6)) };
static LINK6: Entry = Entry { name: "d", mode: 0o555, what: What::Dir(&SETTINGS6, None) };
static SETTINGS6: [Entry; 12] = [
    setting("accept_dad", |at| read(at, Which::AcceptDad), |at, value| write(at, Which::AcceptDad, value)),
    setting("accept_ra", |at| read(at, Which::AcceptRa), |at, value| write(at, Which::AcceptRa, value)),
    setting(
        "addr_gen_mode",
        |at| read(at, Which::AddrGenMode),
        |at, value| write(at, Which::AddrGenMode, value),
    ),
    setting("autoconf", |at| read(at, Which::Autoconf), |at, value| write(at, Which::Autoconf, value)),
    setting(
        "dad_transmits",
        |at| read(at, Which::DadTransmits),
        |at, value| write(at, Which::DadTransmits, value),
    ),
    setting(
        "disable_ipv6",
        |at| read(at, Which::DisableIpv6),
        |at, value| write(at, Which::DisableIpv6, value),
    ),
    setting("forwarding", |at| read_one(at, FORWARDING), |at, value| write_one(at, FORWARDING, value)),
    setting("hop_limit", |at| read_one(at, HOP_LIMIT), |at, value| write_one(at, HOP_LIMIT, value)),
    setting("accept_redirects", |_| line(0), |at, value| refuse(at, value, 0)),
    setting("accept_source_route", |_| line(0), |at, value| refuse(at, value, 0)),
    setting("proxy_ndp", |_| line(0), |at, value| refuse(at, value, 0)),
    setting("use_tempaddr", |_| line(0), |at, value| refuse(at, value, 0)),
];
/// Settings that all interfaces share: the stack's name, and the directory that they are set in.
const FORWARDING: (&str, i64) = ("ipv6/conf/all/forwarding", ALL);
const HOP_LIMIT: (&str, i64) = ("ipv6/conf/default/hop_limit", DEFAULT);
/// The numbers of the directories: negative, unlike those of other values of /proc/sys.
const ALL: i64 = -1;
const DEFAULT: i64 = -2;

const fn setting(
    name: &'static str,
    read: fn(&At) -> Result<Vec<u8>>,
    write: fn(&At, &[u8]) -> Result<()>,
) -> Entry {
    Entry { name, mode: 0o644, what: What::Text(read, Some(write)) }
}

/// Whether an entry is a value.
pub(crate) fn is_setting(entry: &Entry) -> bool {
    SETTINGS.iter().chain(&SETTINGS6).any(|setting| std::ptr::eq(setting, entry))
}

/// Whether a number is that of a directory here.
pub(crate) fn is_here(n: i64) -> bool {
    n < 0
}

/// Whether the caller may set values: as the owner of the network namespace.
pub(crate) fn may_write(at: &At, cx: &dyn Caller) -> bool {
    cx.creds().ns_capable(at.nsproxy().net.user_ns(), Cap::NET_ADMIN)
}

fn whose(n: i64) -> Result<Whose> {
    match n {
        ALL => Ok(Whose::All),
        DEFAULT => Ok(Whose::Default),
        n => DEFAULT.checked_sub(n).and_then(|n| u32::try_from(n).ok()).map(Whose::Link).ok_or(Errno::ENOENT),
    }
}

fn read(at: &At, which: Which) -> Result<Vec<u8>> {
    line(at.nsproxy().net.stack().conf(whose(at.n)?, which)?)
}

fn write(at: &At, which: Which, value: &[u8]) -> Result<()> {
    if !may_write(at, at.cx()?) {
        return Err(Errno::EPERM);
    }
    let value = value.trim_ascii_end();
    at.nsproxy().net.stack().set_conf(whose(at.n)?, which, parse_int(value)?)
}

/// Takes no other value than the one that there is: EOPNOTSUPP.
fn refuse(at: &At, value: &[u8], own: i64) -> Result<()> {
    if !may_write(at, at.cx()?) {
        return Err(Errno::EPERM);
    }
    let same = parse_int(value.trim_ascii_end())? == own;
    if same { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
}

fn read_one(at: &At, (name, _): (&str, i64)) -> Result<Vec<u8>> {
    whose(at.n)?;
    line(at.nsproxy().net.stack().sysctls.by_name(name).ok_or(Errno::ENOENT)?.get())
}

/// An interface has no such setting of its own: EOPNOTSUPP unless the value is that of all.
fn write_one(at: &At, (name, directory): (&str, i64), value: &[u8]) -> Result<()> {
    if !may_write(at, at.cx()?) {
        return Err(Errno::EPERM);
    }
    let value = parse_int(value.trim_ascii_end())?;
    let net = at.nsproxy().net.clone();
    let setting = net.stack().sysctls.by_name(name).ok_or(Errno::ENOENT)?;
    match at.n == directory || setting.get() == value {
        true => setting.set(value),
        false => Err(Errno::EOPNOTSUPP),
    }
}

/// One directory for each interface of the stack, one for all and one for new ones.
struct Links;
/// The same for IPv6.
struct Links6;

fn all(at: &At) -> Vec<(String, i64)> {
    let net = at.nsproxy().net.clone();
    let links = if net.shows_stack() { net.stack().links() } else { Vec::new() };
    let links = links.iter().map(|link| (link.name(), DEFAULT - i64::from(link.index)));
    [("all".to_owned(), ALL), ("default".to_owned(), DEFAULT)].into_iter().chain(links).collect()
}

fn find(at: &At, name: &[u8], entry: &'static Entry) -> Result<Child> {
    let found = all(at).into_iter().find(|(other, _)| other.as_bytes() == name);
    found.map(|(_, n)| Child { entry, proc: None, n }).ok_or(Errno::ENOENT)
}

fn list(at: &At, entry: &'static Entry) -> Vec<(u64, String, Child)> {
    let all = all(at).into_iter();
    all.map(|(name, n)| (n.unsigned_abs(), name, Child { entry, proc: None, n })).collect()
}

impl Names for Links {
    fn find(&self, at: &At, name: &[u8]) -> Result<Child> {
        find(at, name, &LINK)
    }
    fn list(&self, at: &At) -> Result<Vec<(u64, String, Child)>> {
        Ok(list(at, &LINK))
    }
}

impl Names for Links6 {
    fn find(&self, at: &At, name: &[u8]) -> Result<Child> {
        find(at, name, &LINK6)
    }
    fn list(&self, at: &At) -> Result<Vec<(u64, String, Child)>> {
        Ok(list(at, &LINK6))
    }
}
