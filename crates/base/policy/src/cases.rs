//! Operations with the decisions that are expected: tests of a policy.

use crate::address::parse_address;
use crate::diagnostic::Diagnostic;
use crate::document::{self, Node, get};
use crate::parse::{self, ACCESS, PROTOCOLS};
use crate::point::{Access, Facts, Kind, Point, operations_of};
use crate::policy::{Decision, Policy};
use crate::ranges::number;
use crate::rule::{Action, Operation, Protocol};
use std::fmt;

/// Keys of a case.
const CASE_KEYS: &[&str] = &[
    "name",
    "point",
    "call",
    "args",
    "path",
    "second_path",
    "directory",
    "executable",
    "executable_sha256",
    "file_sha256",
    "uid",
    "gid",
    "address",
    "protocol",
    "arguments",
    "access",
    "container",
    "new_in_layer",
    "to_root",
    "expect",
    "errno",
    "rule",
    "dry_run",
];

/// An operation, and what a policy should say of it.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name, or its point.
    pub name: String,
    /// Where it begins.
    pub line: u32,
    points: Vec<Point>,
    call: Option<u16>,
    args: [u64; 6],
    path: Option<String>,
    second_path: Option<String>,
    directory: bool,
    executable: Option<String>,
    executable_sha256: Option<[u8; 32]>,
    file_sha256: Option<[u8; 32]>,
    uid: u32,
    gid: u32,
    address: Option<String>,
    protocol: Protocol,
    arguments: Vec<u8>,
    access: Access,
    container: String,
    new_in_layer: bool,
    to_root: bool,
    expect: String,
    errno: Option<String>,
    rule: Option<String>,
    dry_run: Option<String>,
}

/// What came of a case.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the policy says.
    pub decision: Decision,
    /// What was expected instead.
    pub differs: Option<String>,
}

/// Reads a file of cases, in YAML or JSON: `cases`, a list.
pub fn parse(text: &str) -> Result<Vec<Case>, Vec<Diagnostic>> {
    let root = document::read(text).map_err(|error| vec![error])?;
    let mut found = Vec::new();
    let entries = root.entries("a file of cases", &["cases"], &mut found);
    let list = match get(&entries, "cases").map(|node| node.list("cases")) {
        Some(Ok(list)) if !list.is_empty() => list,
        Some(Err(error)) => return Err(vec![error]),
        Some(_) => return Err(vec![root.error("there are no cases")]),
        None => {
            found.push(root.error("the file has no list of cases: write cases: [{point: ..., expect: ...}]"));
            return Err(found);
        }
    };
    let mut cases = Vec::new();
    for (at, node) in list.iter().enumerate() {
        let before = found.len();
        let entries = node.entries("a case", CASE_KEYS, &mut found);
        if found.len() == before {
            match case(node, &entries) {
                Ok(case) => cases.push(case),
                Err(error) => found.push(error),
            }
        }
        for error in &mut found[before..] {
            error.rule = Some(format!("case {}", at + 1));
        }
    }
    if found.is_empty() { Ok(cases) } else { Err(found) }
}

fn case(node: &Node, entries: &[(&'static str, &Node)]) -> Result<Case, Diagnostic> {
    let value = |key: &str| get(entries, key);
    let text = |key: &str| value(key).map(|node| node.text(key).map(str::to_owned)).transpose();
    let flag = |key: &str| value(key).map_or(Ok(false), |node| node.flag(key));
    let id = |key: &str| {
        let read = |node: &Node| {
            let id = number(node.text(key)?).and_then(|id| u32::try_from(id).ok());
            id.ok_or_else(|| node.error(format!("{key} is a number")))
        };
        value(key).map_or(Ok(0), read)
    };
    let digest = |key: &str| {
        let read = |node: &Node| {
            parse::digest(node.text(key)?).map_err(|error| node.error(format!("{key}: {error}")))
        };
        value(key).map(read).transpose()
    };
    let Some(point_node) = value("point") else {
        return Err(node.error("the case has no point: write point: file/open, or net/connect ..."));
    };
    let point_text = point_node.text("point")?;
    let mut call = value("call").map(|node| call(node, node.text("call")?)).transpose()?;
    let points = match Kind::find(point_text) {
        Some(kind) => vec![Point::Operation(kind)],
        None => {
            let name = point_text.strip_prefix("syscall/").and_then(|rest| rest.strip_suffix("/enter"));
            let Some(name) = name else {
                return Err(point_node.error(format!("{point_text:?} is no point")));
            };
            let number = self::call(point_node, name)?;
            call = Some(number);
            let operations = operations_of(name).iter().map(|kind| Point::Operation(*kind));
            std::iter::once(Point::Call(number)).chain(operations).collect()
        }
    };
    let mut args = [0; 6];
    if let Some(node) = value("args") {
        let list = node.list("args")?;
        if list.len() > args.len() {
            return Err(node.error("a system call has at most 6 arguments"));
        }
        for (arg, node) in args.iter_mut().zip(list) {
            *arg = number(node.text("args")?).ok_or_else(|| node.error("args are numbers"))?;
        }
    }
    for key in ["path", "second_path", "executable"] {
        if let Some(node) = value(key)
            && !node.text(key)?.starts_with('/')
        {
            return Err(node
                .error(format!("{key} is a path from the root on; leave it out for an object without one")));
        }
    }
    if let Some(node) = value("address") {
        parse_address(node.text("address")?).map_err(|error| node.error(error))?;
    }
    let mut arguments = Vec::new();
    if let Some(node) = value("arguments") {
        for node in node.list("arguments")? {
            arguments.extend_from_slice(node.text("arguments")?.as_bytes());
            arguments.push(0);
        }
    }
    let one_of = |key: &str, node: &Node| match node.text(key)? {
        text if Action::NAMES.contains(&text) => Ok(text.to_owned()),
        text => Err(node.error(format!("{key}: {text:?} is none of {}", Action::NAMES.join(", ")))),
    };
    let Some(expect) = value("expect") else {
        return Err(node.error("the case expects nothing: write expect: allow, or deny ..."));
    };
    if let Some(node) = value("errno")
        && parse::errno_named(node.text("errno")?).is_none()
    {
        return Err(node.error("errno is a name of errno(3)"));
    }
    Ok(Case {
        name: text("name")?.unwrap_or_else(|| point_text.to_owned()),
        line: node.line,
        points,
        call,
        args,
        path: text("path")?,
        second_path: text("second_path")?,
        directory: flag("directory")?,
        executable: text("executable")?,
        executable_sha256: digest("executable_sha256")?,
        file_sha256: digest("file_sha256")?,
        uid: id("uid")?,
        gid: id("gid")?,
        address: text("address")?,
        protocol: flags(value("protocol"), "protocol", PROTOCOLS)?,
        arguments,
        access: flags(value("access"), "access", ACCESS)?,
        container: text("container")?.unwrap_or_default(),
        new_in_layer: flag("new_in_layer")?,
        to_root: flag("to_root")?,
        expect: one_of("expect", expect)?,
        errno: text("errno")?,
        rule: text("rule")?,
        dry_run: value("dry_run").map(|node| one_of("dry_run", node)).transpose()?,
    })
}

fn call(node: &Node, name: &str) -> Result<u16, Diagnostic> {
    let number = seccomp::number(name).and_then(|number| u16::try_from(number).ok());
    number.ok_or_else(|| node.error(format!("{name:?} is no system call of x86-64")))
}

fn flags<F: bitflags::Flags>(node: Option<&Node>, key: &str, known: &[(&str, F)]) -> Result<F, Diagnostic> {
    let mut all = F::empty();
    let Some(node) = node else { return Ok(all) };
    for node in node.several(key)? {
        let text = node.text(key)?;
        let Some((_, flag)) = known.iter().find(|(name, _)| *name == text) else {
            let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
            return Err(node.error(format!("{key}: {text:?} is none of {}", names.join(", "))));
        };
        all.insert(F::from_bits_retain(flag.bits()));
    }
    Ok(all)
}

impl Case {
    /// What the policy says, as the kernel would ask: at the call first, then at its operations.
    pub fn run(&self, policy: &Policy) -> Outcome {
        let mut decision = Decision::ALLOW;
        for point in &self.points {
            let next = policy.decide(&self.operation(*point));
            if !decision.is_recorded() {
                decision = next;
            }
            if next.action.refuses() {
                decision = next;
                break;
            }
        }
        let differs = (!self.as_expected(policy, &decision)).then(|| {
            let errno = self.errno.as_ref().map(|errno| format!(" {errno}")).unwrap_or_default();
            let rule = self.rule.as_ref().map(|rule| format!(" by rule {rule}")).unwrap_or_default();
            let would =
                self.dry_run.as_ref().map(|action| format!(", in a dry run {action}")).unwrap_or_default();
            format!("{}{errno}{rule}{would}", self.expect)
        });
        Outcome { decision, differs }
    }

    fn as_expected(&self, policy: &Policy, decision: &Decision) -> bool {
        let errno = match decision.action {
            Action::Deny(errno) => Some(errno),
            _ => None,
        };
        // The rule that acts, or else the one that tries.
        let rule = decision.rule.or(decision.dry_run.and_then(|would| would.rule));
        decision.action.name() == self.expect
            && self.errno.as_deref().is_none_or(|name| parse::errno_named(name) == errno)
            && self.rule.as_deref().is_none_or(|name| match rule {
                Some(index) => {
                    let rule = &policy.rules()[usize::from(index)];
                    rule.name.as_deref() == Some(name) || name.parse() == Ok(u32::from(index) + 1)
                }
                None => name == "default",
            })
            && self
                .dry_run
                .as_deref()
                .is_none_or(|name| decision.dry_run.is_some_and(|w| w.action.name() == name))
    }

    fn operation(&self, point: Point) -> Operation<'_> {
        let own = match point {
            Point::Operation(kind) => kind.facts(),
            Point::Call(_) => Facts::CALLER,
        };
        let known = |fact, value| if own.contains(fact) { value } else { None };
        Operation {
            call: self.call,
            args: self.args,
            path: known(Facts::PATH, self.path.as_deref().map(str::as_bytes)),
            second_path: known(Facts::PATH, self.second_path.as_deref().map(str::as_bytes)),
            directory: self.directory,
            new_in_layer: self.new_in_layer,
            access: self.access,
            file_sha256: self.file_sha256.as_ref(),
            arguments: &self.arguments,
            executable: self.executable.as_deref().map(str::as_bytes),
            executable_sha256: self.executable_sha256.as_ref(),
            uid: self.uid,
            gid: self.gid,
            container: &self.container,
            address: self.address.as_deref().and_then(|text| parse_address(text).ok()),
            protocol: self.protocol,
            to_root: self.to_root,
            ..Operation::new(point)
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.name)
    }
}
