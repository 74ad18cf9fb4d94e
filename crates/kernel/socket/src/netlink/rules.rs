//! Rules: RTM_GETRULE, RTM_NEWRULE and RTM_DELRULE. See ip-rule(8).

use super::asker::Asker;
use super::error::{Refusal, Result};
use super::request::{Request, text};
use super::wire::{Message, bytes_of};
use abi::Errno;
use netstack::addr::Prefix;
use netstack::route::{Action, RouteKind, Rule, TABLE_MAIN};

/// Length of `struct fib_rule_hdr`.
const HDR: usize = 12;
/// Attributes.
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_OIFNAME: u16 = 17;
const FRA_PROTOCOL: u16 = 21;
/// All that a rule can be made with. FRA_GOTO, FRA_UID_RANGE, FRA_IP_PROTO, the port ranges and the rest are refused.
const KNOWN: [u16; 10] = [
    FRA_DST,
    FRA_SRC,
    FRA_IIFNAME,
    FRA_PRIORITY,
    FRA_FWMARK,
    FRA_SUPPRESS_PREFIXLEN,
    FRA_TABLE,
    FRA_FWMASK,
    FRA_OIFNAME,
    FRA_PROTOCOL,
];
/// FR_ACT_TO_TBL and the actions that refuse.
const TO_TABLE: u8 = 1;
const ACTIONS: [(RouteKind, u8); 3] =
    [(RouteKind::Blackhole, 6), (RouteKind::Unreachable, 7), (RouteKind::Prohibit, 8)];
/// Flags of a rule: FIB_RULE_INVERT, and what is set for an interface that does not exist.
const INVERT: u32 = 2;
const IIF_DETACHED: u32 = 8;
const OIF_DETACHED: u32 = 16;

/// The rules of one family, or of both.
pub(super) fn dump(asker: &Asker<'_>) -> Result<Vec<Vec<u8>>> {
    if !asker.net.shows_stack() {
        return Ok(Vec::new());
    }
    let wanted = match asker.family() {
        libc::AF_UNSPEC => None,
        libc::AF_INET => Some(true),
        libc::AF_INET6 => Some(false),
        _ => return Err(Errno::EAFNOSUPPORT.into()),
    };
    Ok(asker.net.stack().read_routes(|routes| {
        let all = [true, false].into_iter().filter(|v4| wanted.is_none_or(|wanted| wanted == *v4));
        let of = |v4: bool| routes.rules().iter().filter(move |rule| rule.v4 == v4);
        all.flat_map(of).map(|rule| describe(asker.reply(libc::RTM_NEWRULE, 0), rule)).collect()
    }))
}

pub(super) fn describe(message: Message, rule: &Rule) -> Vec<u8> {
    let (action, table) = match rule.action {
        Action::Table(table) => (TO_TABLE, table),
        Action::Refuse(kind) => (ACTIONS.iter().find(|(k, _)| *k == kind).map_or(0, |(_, act)| *act), 0),
    };
    let len = |prefix: &Option<Prefix>| prefix.map_or(0, |prefix| prefix.len);
    let short = u8::try_from(table).unwrap_or(0);
    let family = if rule.v4 { libc::AF_INET } else { libc::AF_INET6 } as u8;
    let tos = rule.tos.unwrap_or(0);
    let mut fixed = vec![family, len(&rule.to), len(&rule.from), tos, short, 0, 0, action];
    let detached = |n: usize, index: u32| !rule.names[n].is_empty() && index == 0;
    let flags = if rule.invert { INVERT } else { 0 }
        | if detached(0, rule.iif) { IIF_DETACHED } else { 0 }
        | if detached(1, rule.oif) { OIF_DETACHED } else { 0 };
    fixed.extend(flags.to_ne_bytes());
    let mut message = message
        .fixed(&fixed)
        .number(FRA_TABLE, table)
        .number(FRA_SUPPRESS_PREFIXLEN, rule.suppress.map_or(u32::MAX, u32::from))
        .attribute(FRA_PROTOCOL, &[rule.protocol]);
    for (kind, name) in [(FRA_IIFNAME, &rule.names[0]), (FRA_OIFNAME, &rule.names[1])] {
        if !name.is_empty() {
            message = message.text(kind, name);
        }
    }
    if rule.priority != 0 {
        message = message.number(FRA_PRIORITY, rule.priority);
    }
    if let Some((mark, mask)) = rule.mark {
        message = message.number(FRA_FWMARK, mark).number(FRA_FWMASK, mask);
    }
    for (kind, prefix) in [(FRA_DST, rule.to), (FRA_SRC, rule.from)] {
        if let Some(prefix) = prefix.filter(|prefix| prefix.len != 0) {
            message = message.attribute(kind, &bytes_of(&prefix.addr));
        }
    }
    message.done()
}

/// A rule as a request describes it, and its priority if it names one.
fn rule(asker: &Asker<'_>, request: &Request<'_>) -> Result<(Rule, Option<u32>)> {
    let v4 = match asker.family() {
        libc::AF_INET => true,
        libc::AF_INET6 => false,
        _ => return Err(Refusal::with(Errno::EAFNOSUPPORT, "Rule family not supported")),
    };
    let most = if v4 { 32 } else { 128 };
    let prefix = |kind: u16, len: u8, text: &'static str| match request.address(kind)? {
        _ if len > most => Err(Refusal::with(Errno::EINVAL, text)),
        None if len != 0 => Err(Refusal::with(Errno::EINVAL, text)),
        Some(addr) if len != 0 => Ok(Some(Prefix::new(addr, len))),
        _ => Ok(None),
    };
    let to = prefix(FRA_DST, request.byte(1), "Invalid dst address")?;
    let from = prefix(FRA_SRC, request.byte(2), "Invalid src address")?;
    let table = request.number(FRA_TABLE)?.unwrap_or(request.byte(4).into());
    let action = match request.byte(7) {
        TO_TABLE | 0 => Action::Table(if table == 0 { TABLE_MAIN } else { table }),
        act => match ACTIONS.iter().find(|(_, known)| *known == act) {
            Some((kind, _)) => Action::Refuse(*kind),
            // FR_ACT_GOTO and FR_ACT_NOP.
            None if act < 5 => return Err(Errno::EOPNOTSUPP.into()),
            None => return Err(Refusal::with(Errno::EINVAL, "Invalid rule action")),
        },
    };
    let mark = match (request.number(FRA_FWMARK)?, request.number(FRA_FWMASK)?) {
        (None, None) => None,
        (mark, mask) => Some((mark.unwrap_or(0), mask.unwrap_or(u32::MAX))),
    };
    let name = |kind: u16| -> Result<String> {
        let name = request.attribute(kind).map(text).transpose()?.unwrap_or_default();
        if name.len() < 16 { Ok(name.to_owned()) } else { Err(Errno::ERANGE.into()) }
    };
    let names = [name(FRA_IIFNAME)?, name(FRA_OIFNAME)?];
    let index = |name: &str| asker.net.stack().link_by_name(name).map_or(0, |link| link.index);
    let suppress = request.number(FRA_SUPPRESS_PREFIXLEN)?.filter(|len| *len != u32::MAX);
    let priority = request.number(FRA_PRIORITY)?;
    let rule = Rule {
        priority: priority.unwrap_or(0),
        v4,
        from,
        to,
        iif: index(&names[0]),
        oif: index(&names[1]),
        names,
        mark,
        tos: Some(request.byte(3)).filter(|tos| *tos != 0),
        action,
        invert: request.word(8) & INVERT != 0,
        suppress: suppress.map(|len| len.min(128) as u8),
        protocol: request.attribute(FRA_PROTOCOL).and_then(|v| v.first().copied()).unwrap_or(0),
    };
    Ok((rule, priority))
}

/// RTM_NEWRULE.
pub(super) fn add(asker: &Asker<'_>) -> Result<()> {
    let request = header(asker)?;
    let (mut rule, priority) = rule(asker, &request)?;
    let exclusive = i32::from(asker.header.flags) & libc::NLM_F_EXCL != 0;
    asker.net.stack().with_routes(|routes| {
        let same = |old: &Rule| Rule { protocol: rule.protocol, ..old.clone() } == rule;
        if exclusive && priority.is_some() && routes.rules().iter().any(same) {
            return Err(Errno::EEXIST);
        }
        if priority.is_none() {
            // In front of the second rule of the family.
            let second = routes.rules().iter().filter(|other| other.v4 == rule.v4).nth(1);
            rule.priority = second.map_or(0, |second| second.priority.saturating_sub(1));
        }
        routes.add_rule(rule)
    })?;
    Ok(())
}

/// RTM_DELRULE: the first rule that has all that the request names.
pub(super) fn delete(asker: &Asker<'_>) -> Result<()> {
    let request = header(asker)?;
    let (rule, priority) = rule(asker, &request)?;
    let act = request.byte(7);
    let table = request.number(FRA_TABLE)?.unwrap_or(request.byte(4).into());
    let matches = |old: &Rule| {
        old.v4 == rule.v4
            && priority.is_none_or(|priority| priority == old.priority)
            && (act == 0 || (table == 0 && act == TO_TABLE) || old.action == rule.action)
            && (rule.from.is_none() || rule.from == old.from)
            && (rule.to.is_none() || rule.to == old.to)
            && (rule.mark.is_none() || rule.mark == old.mark)
            && (rule.tos.is_none() || rule.tos == old.tos)
            && (rule.suppress.is_none() || rule.suppress == old.suppress)
            && (!rule.invert || old.invert)
            && (rule.protocol == 0 || rule.protocol == old.protocol)
            && rule.names.iter().zip(&old.names).all(|(wanted, has)| wanted.is_empty() || wanted == has)
    };
    asker.net.stack().with_routes(|routes| routes.remove_rule(matches))?;
    Ok(())
}

fn header<'a>(asker: &Asker<'a>) -> Result<Request<'a>> {
    if asker.body().len() < HDR {
        return Err(Refusal::with(Errno::EINVAL, "Invalid msg length"));
    }
    Request::new(asker.message, HDR, &KNOWN)
}
