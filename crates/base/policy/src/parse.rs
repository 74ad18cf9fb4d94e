//! From a file to rules.

use crate::address::AddressPattern;
use crate::diagnostic::{Diagnostic, meant, nearest};
use crate::document::{self, Node, Value, get};
use crate::glob::{Glob, Pattern};
use crate::point::Access;
use crate::ranges::{Ranges, number};
use crate::rule::{Action, Ask, Conditions, Protocol, Register, Rule};
use crate::targets;
use abi::Errno;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Keys of a file.
pub(crate) const FILE_KEYS: &[&str] = &["version", "default", "errno", "dry_run", "ask", "rules"];
/// Keys of a rule.
pub(crate) const RULE_KEYS: &[&str] = &[
    "name",
    "point",
    "path",
    "path_not",
    "executable",
    "executable_not",
    "executable_sha256",
    "file_sha256",
    "uid",
    "uid_not",
    "gid",
    "gid_not",
    "address",
    "address_not",
    "protocol",
    "arguments",
    "access",
    "container",
    "new_in_layer",
    "to_root",
    "arg0",
    "arg1",
    "arg2",
    "arg3",
    "arg4",
    "arg5",
    "action",
    "errno",
    "dry_run",
    "ask",
];
/// Keys of `ask`.
pub(crate) const ASK_KEYS: &[&str] = &["socket", "timeout", "default"];
/// Names of accesses.
pub(crate) const ACCESS: &[(&str, Access)] = &[
    ("read", Access::READ),
    ("write", Access::WRITE),
    ("append", Access::APPEND),
    ("create", Access::CREATE),
    ("truncate", Access::TRUNCATE),
    ("execute", Access::EXECUTE),
];
/// Names of protocols.
pub(crate) const PROTOCOLS: &[(&str, Protocol)] = &[
    ("tcp", Protocol::TCP),
    ("udp", Protocol::UDP),
    ("icmp", Protocol::ICMP),
    ("raw", Protocol::RAW),
    ("unix", Protocol::UNIX),
    ("netlink", Protocol::NETLINK),
    ("packet", Protocol::PACKET),
    ("other", Protocol::OTHER),
];
/// Most rules of a file.
const RULES_MAX: usize = 10_000;
/// How long an answer may take at most.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// What a file says.
pub(crate) struct File {
    pub(crate) rules: Vec<Rule>,
    pub(crate) default: Action,
    pub(crate) dry_run: bool,
    pub(crate) ask: Option<Ask>,
}

/// Collects mistakes.
struct Reader {
    found: Vec<Diagnostic>,
}

impl Reader {
    /// A value, or its mistake.
    fn take<T>(&mut self, read: Result<T, Diagnostic>) -> Option<T> {
        read.map_err(|error| self.found.push(error)).ok()
    }

    /// All elements of a value that may be one or several.
    fn each<T>(
        &mut self,
        node: &Node,
        what: &str,
        one: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let list = self.take(node.several(what))?;
        let before = self.found.len();
        let mut out = Vec::new();
        for node in list {
            let read = node
                .text(what)
                .and_then(|text| one(text).map_err(|error| node.error(format!("{what}: {error}"))));
            out.extend(self.take(read));
        }
        (self.found.len() == before).then_some(out)
    }

    fn flags<F: bitflags::Flags>(&mut self, node: &Node, what: &str, known: &[(&str, F)]) -> Option<F> {
        let each = self.each(node, what, |text| {
            let names = || known.iter().map(|(name, _)| *name);
            let flag = known.iter().find(|(name, _)| *name == text).map(|(_, flag)| flag.bits());
            flag.ok_or_else(|| {
                let all: Vec<_> = names().collect();
                format!("{text:?} is none of {}{}", all.join(", "), meant(text, names()))
            })
        })?;
        Some(each.into_iter().fold(F::empty(), |all, bits| all.union(F::from_bits_retain(bits))))
    }
}

/// Reads a file of rules.
pub(crate) fn file(text: &str) -> Result<File, Vec<Diagnostic>> {
    let root = document::read(text).map_err(|error| vec![error])?;
    let mut reader = Reader { found: Vec::new() };
    let entries = root.entries("a policy", FILE_KEYS, &mut reader.found);
    let known = reader.found.is_empty();
    if let Some(version) = get(&entries, "version")
        && !matches!(&version.value, Value::Scalar { text, .. } if text == "1")
    {
        reader.found.push(version.error("the version is 1"));
    }
    let errno = get(&entries, "errno").and_then(|node| reader.take(errno(node)));
    let ask = get(&entries, "ask").and_then(|node| ask(&mut reader, node));
    let mut default = Action::Allow;
    if let Some(node) = get(&entries, "default") {
        default = reader.take(action(node, "default", errno)).unwrap_or(default);
        if default == Action::Ask && ask.is_none() && get(&entries, "ask").is_none() {
            reader.found.push(node.error(WITHOUT_ASK));
        }
    }
    if let Some(node) = get(&entries, "errno")
        && !matches!(default, Action::Deny(_) | Action::Ask)
    {
        reader.found.push(node.error("this errno is that of default: deny; rules have their own"));
    }
    let dry_run =
        get(&entries, "dry_run").and_then(|node| reader.take(node.flag("dry_run"))).unwrap_or(false);
    let mut rules = Vec::new();
    match get(&entries, "rules") {
        Some(node) => {
            let list = reader.take(node.list("rules")).unwrap_or_default();
            if list.len() > RULES_MAX {
                reader.found.push(node.error(format!("a policy has at most {RULES_MAX} rules")));
            }
            for (at, node) in list.iter().take(RULES_MAX).enumerate() {
                let before = reader.found.len();
                let rule = rule(&mut reader, node, ask.as_ref());
                let label = label(at, name_of(node));
                for found in &mut reader.found[before..] {
                    found.rule = Some(label.clone());
                }
                rules.extend(rule);
            }
            repeated_names(list, &mut reader);
        }
        None if known => reader.found.push(root.error("a policy has a list of rules: write rules: []")),
        None => {}
    }
    match reader.found.is_empty() {
        true => Ok(File { rules, default, dry_run, ask }),
        false => {
            reader.found.sort_by_key(|found| (found.line, found.column));
            Err(reader.found)
        }
    }
}

/// How messages call a rule: by its number from 1 on, and its name.
pub(crate) fn label(at: usize, name: Option<&str>) -> String {
    let name = name.map(|name| format!(" {name:?}")).unwrap_or_default();
    format!("rule {}{name}", at + 1)
}

fn name_of(node: &Node) -> Option<&str> {
    let Value::Map(map) = &node.value else { return None };
    let name =
        map.iter().find(|(key, _)| matches!(&key.value, Value::Scalar { text, .. } if text == "name"))?;
    name.1.text("name").ok()
}

fn repeated_names(list: &[Node], reader: &mut Reader) {
    let mut seen = std::collections::HashMap::new();
    for node in list {
        let Some(name) = name_of(node) else { continue };
        if let Some(line) = seen.insert(name, node.line) {
            reader.found.push(node.error(format!("the name {name:?} is that of the rule in line {line}")));
        }
    }
}

fn rule(reader: &mut Reader, node: &Node, common: Option<&Ask>) -> Option<Rule> {
    let before = reader.found.len();
    let entries = node.entries("a rule", RULE_KEYS, &mut reader.found);
    if !matches!(node.value, Value::Map(_)) {
        return None;
    }
    let value = |key: &str| get(&entries, key);
    let name = value("name").and_then(|node| reader.take(name(node)));
    let errno_node = value("errno");
    let errno = errno_node.and_then(|node| reader.take(errno(node)));
    let action_node = value("action");
    let action = match action_node {
        Some(node) => reader.take(action(node, "action", errno)),
        None => {
            reader.found.push(node.error("the rule has no action: write action: deny, or log, allow ..."));
            None
        }
    };
    let own = value("ask").and_then(|node| ask(reader, node));
    let ask = match (action, action_node) {
        (Some(Action::Ask), Some(node)) => {
            let mut ask = own.or_else(|| common.cloned());
            if ask.is_none() && value("ask").is_none() {
                reader.found.push(node.error(WITHOUT_ASK));
            }
            if let (Some(ask), Some(errno)) = (&mut ask, errno)
                && let Action::Deny(own) = &mut ask.default
            {
                *own = errno;
            }
            ask
        }
        (Some(_), _) => {
            if let Some(node) = value("ask") {
                reader.found.push(node.error("ask is for action: ask"));
            }
            None
        }
        _ => None,
    };
    if let (Some(action), Some(node)) = (action, errno_node)
        && !matches!(action, Action::Deny(_) | Action::Ask)
    {
        reader.found.push(node.error("errno is for action: deny"));
    }
    let dry_run = value("dry_run").and_then(|node| reader.take(node.flag("dry_run"))).unwrap_or(false);
    let when = conditions(reader, &entries);
    let mut points = Vec::new();
    let mut targets = Vec::new();
    match value("point") {
        Some(node) => {
            for node in reader.take(node.several("point")).unwrap_or_default() {
                let Some(text) = reader.take(node.text("point")) else { continue };
                let found = targets::of(text, &when, action);
                let found = found.map_err(|error| node.error(error));
                if points.iter().any(|known| known == text) {
                    reader.found.push(node.error(format!("{text} is there twice")));
                }
                targets.extend(reader.take(found).unwrap_or_default());
                points.push(text.to_owned());
            }
        }
        None => {
            reader
                .found
                .push(node.error("the rule has no point: write point: file/open, or net/connect ..."));
        }
    }
    if reader.found.len() != before {
        return None;
    }
    Some(Rule { name, line: node.line, points, action: action?, dry_run, ask, targets, when })
}

const WITHOUT_ASK: &str =
    "ask needs a socket: write ask: {socket: /run/decide.sock, timeout: 500ms, default: deny}";

fn conditions(reader: &mut Reader, entries: &[(&'static str, &Node)]) -> Conditions {
    let value = |key: &str| get(entries, key);
    let mut when = Conditions::default();
    let mut patterns = |key: &str| value(key).and_then(|node| reader.each(node, key, Pattern::parse));
    when.path = patterns("path");
    when.path_not = patterns("path_not").unwrap_or_default();
    when.executable = patterns("executable");
    when.executable_not = patterns("executable_not").unwrap_or_default();
    let mut digests = |key: &str| value(key).and_then(|node| reader.each(node, key, digest));
    when.executable_sha256 = digests("executable_sha256");
    when.file_sha256 = digests("file_sha256");
    let mut ids = |key: &str| value(key).and_then(|node| reader.take(Ranges::read(node, key)));
    when.uid = ids("uid");
    when.uid_not = ids("uid_not");
    when.gid = ids("gid");
    when.gid_not = ids("gid_not");
    let mut addresses = |key: &str| value(key).and_then(|node| reader.each(node, key, AddressPattern::parse));
    when.address = addresses("address");
    when.address_not = addresses("address_not").unwrap_or_default();
    when.protocol = value("protocol").and_then(|node| reader.flags(node, "protocol", PROTOCOLS));
    when.access = value("access").and_then(|node| reader.flags(node, "access", ACCESS));
    let mut texts = |key: &str| {
        value(key).and_then(|node| reader.each(node, key, |text| Ok((text.to_owned(), Glob::parse(text)?))))
    };
    when.arguments = texts("arguments").unwrap_or_default();
    when.container = texts("container");
    let mut flag = |key: &str| value(key).and_then(|node| reader.take(node.flag(key)));
    when.new_in_layer = flag("new_in_layer");
    when.to_root = flag("to_root");
    for (index, key) in ["arg0", "arg1", "arg2", "arg3", "arg4", "arg5"].into_iter().enumerate() {
        if let Some(node) = value(key) {
            when.registers.extend(register(reader, node, key, index as u8));
        }
    }
    when
}

/// A number, a range, a list of both, or `{mask: M, equal: V}`.
fn register(reader: &mut Reader, node: &Node, what: &str, index: u8) -> Option<Register> {
    let Value::Map(_) = node.value else {
        let values = reader.take(Ranges::read(node, what))?;
        return Some(Register { index, mask: u64::MAX, values });
    };
    let before = reader.found.len();
    let entries = node.entries(what, &["mask", "equal"], &mut reader.found);
    let mask = get(&entries, "mask").and_then(|node| {
        let read =
            node.text("mask").and_then(|text| number(text).ok_or_else(|| node.error("mask is a number")));
        reader.take(read)
    });
    let values = get(&entries, "equal").and_then(|node| reader.take(Ranges::read(node, "equal")));
    if reader.found.len() != before {
        return None;
    }
    let Some(mask) = mask else {
        reader
            .found
            .push(node.error(format!("{what} as a mapping has a mask: write {{mask: 0x40, equal: 0x40}}")));
        return None;
    };
    Some(Register { index, mask, values: values.unwrap_or_else(|| Ranges::one(mask)) })
}

fn name(node: &Node) -> Result<String, Diagnostic> {
    let text = node.text("name")?;
    match text.is_empty() || text.len() > 200 || text.chars().any(char::is_control) {
        true => Err(node.error("a name has 1 to 200 bytes on one line")),
        false => Ok(text.to_owned()),
    }
}

fn action(node: &Node, what: &str, errno: Option<Errno>) -> Result<Action, Diagnostic> {
    let text = node.text(what)?;
    Ok(match text {
        "allow" => Action::Allow,
        "log" => Action::Log,
        "deny" => Action::Deny(errno.unwrap_or(Errno::EACCES)),
        "kill-process" => Action::KillProcess,
        "kill-container" => Action::KillContainer,
        "freeze" => Action::Freeze,
        "ask" => Action::Ask,
        _ => {
            let names = Action::NAMES.join(", ");
            let meant = meant(text, Action::NAMES);
            return Err(node.error(format!("{what}: {text:?} is none of {names}{meant}")));
        }
    })
}

fn errno(node: &Node) -> Result<Errno, Diagnostic> {
    let text = node.text("errno")?;
    errno_named(text).ok_or_else(|| {
        // All begin with E, which makes none of them near.
        let names = (1..=133).filter_map(|raw| Errno::from_raw(raw).name().strip_prefix('E'));
        let near = nearest(text.strip_prefix('E').unwrap_or(text), names);
        let meant = near.map(|name| format!("; did you mean E{name}?")).unwrap_or_default();
        node.error(format!("errno: {text:?} is no name of errno(3){meant}"))
    })
}

/// The error number of that name, as `EACCES`: one that programs know.
pub fn errno_named(text: &str) -> Option<Errno> {
    let known = (1..=133).map(Errno::from_raw).find(|errno| errno.name() == text && text != "E?");
    known.or(match text {
        "EWOULDBLOCK" => Some(Errno::EWOULDBLOCK),
        "ENOTSUP" => Some(Errno::ENOTSUP),
        _ => None,
    })
}

fn ask(reader: &mut Reader, node: &Node) -> Option<Ask> {
    let before = reader.found.len();
    let entries = node.entries("ask", ASK_KEYS, &mut reader.found);
    if reader.found.len() != before {
        return None;
    }
    let mut needed = |key: &str, example: &str| {
        let found = get(&entries, key);
        if found.is_none() {
            reader.found.push(node.error(format!("ask has no {key}: write {key}: {example}")));
        }
        found
    };
    let (socket, timeout, default) =
        (needed("socket", "/run/decide.sock")?, needed("timeout", "500ms")?, needed("default", "deny")?);
    let socket = reader.take(socket.text("socket").and_then(|text| {
        let path = Path::new(text).is_absolute() && text.len() <= 107;
        path.then(|| PathBuf::from(text))
            .ok_or_else(|| socket.error("socket is an absolute path of at most 107 bytes"))
    }));
    let timeout = reader.take(timeout.text("timeout").and_then(|text| {
        let wrong = || timeout.error(format!("timeout: {text:?} is no time of at most 10m, as 500ms or 2s"));
        duration(text).filter(|time| !time.is_zero() && *time <= TIMEOUT_MAX).ok_or_else(wrong)
    }));
    let read = action(default, "default", None).and_then(|action| match action {
        Action::Ask => {
            Err(default.error("without an answer there is nothing more to ask: write default: deny"))
        }
        other => Ok(other),
    });
    let default = reader.take(read);
    Some(Ask { socket: socket?, timeout: timeout?, default: default? })
}

fn duration(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..end].parse().ok()?;
    match &text[end..] {
        "us" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number.checked_mul(60)?)),
        _ => None,
    }
}

pub(crate) fn digest(text: &str) -> Result<[u8; 32], String> {
    let wrong = || format!("{text:?} is no SHA-256: write its 64 hexadecimal digits, as sha256sum(1) does");
    if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(text.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
    }
    Ok(digest)
}
