//! Expressions are the parts of rules. There is one file for each, or for a few that belong together. A file has the
//! attributes of its expressions, their effect on a packet, and their form in a listing.

pub(crate) mod bits;
pub(crate) mod compare;
pub(crate) mod counter;
pub(crate) mod ct;
pub(crate) mod dynset;
pub(crate) mod exthdr;
pub(crate) mod fib;
pub(crate) mod hash;
pub(crate) mod immediate;
pub(crate) mod limit;
pub(crate) mod log;
pub(crate) mod lookup;
pub(crate) mod meta;
pub(crate) mod nat;
pub(crate) mod numgen;
pub(crate) mod objref;
pub(crate) mod payload;
pub(crate) mod quota;
pub(crate) mod reject;
pub(crate) mod rt;
pub(crate) mod xt;

use crate::attr::{Attr, Attrs, Result, Writer};
use crate::data::Verdict;
use crate::model::{Kind, Ref, Table};
use crate::run::Run;
use crate::scope::Scope;
use abi::Errno;

/// What an expression comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The next expression.
    Next,
    /// The rule does not match.
    Break,
    /// The rule decides.
    Verdict(Verdict),
}

impl Flow {
    /// Goes on when it matches.
    pub fn when(matches: bool) -> Flow {
        if matches { Flow::Next } else { Flow::Break }
    }
}

/// Where a rule is reached from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub kind: Kind,
    pub hook: u8,
}

impl Place {
    /// The bit of the hook.
    pub fn bit(self) -> u8 {
        1 << self.hook
    }
    /// The hook as netfilter's point.
    pub fn point(self) -> netfilter::Point {
        crate::hooks::POINTS[usize::from(self.hook) % crate::hooks::POINTS.len()]
    }
}

/// An expression. Packets of several threads meet it at once; state is atomic or behind a leaf lock.
pub(crate) trait Expr: Send + Sync {
    fn name(&self) -> &'static str;
    fn run(&self, run: &mut Run<'_, '_>) -> Flow;
    /// Writes the attributes that it was made from, and what it counted.
    fn dump(&self, out: &mut Writer, table: &Table);
    /// What it keeps in use.
    fn refs(&self) -> Vec<Ref> {
        Vec::new()
    }
    /// Whether it may stand in a chain that such a base chain leads to.
    fn validate(&self, _place: Place, _table: &Table) -> Result<(), Errno> {
        Ok(())
    }
    /// One like it for a new element of a set; `None` when elements cannot have it.
    fn fresh(&self) -> Option<Box<dyn Expr>> {
        None
    }
    /// Forgets what it counted.
    fn reset(&self) {}
    /// Bytes that it takes beside itself.
    fn weight(&self) -> usize {
        0
    }
}

const NAME: u16 = 1;
const DATA: u16 = 2;
/// Longest name of an expression.
const NAME_MAX: usize = 128;

type Parser = fn(Attrs<'_>, &Scope<'_>) -> Result<Box<dyn Expr>>;

/// All expressions by name.
const PARSERS: &[(&[u8], Parser)] = &[
    (b"bitwise", bits::bitwise),
    (b"byteorder", bits::byteorder),
    (b"cmp", compare::cmp),
    (b"counter", counter::parse),
    (b"ct", ct::parse),
    (b"dynset", dynset::parse),
    (b"exthdr", exthdr::parse),
    (b"fib", fib::parse),
    (b"hash", hash::parse),
    (b"immediate", immediate::parse),
    (b"limit", limit::parse),
    (b"log", log::parse),
    (b"lookup", lookup::parse),
    (b"masq", nat::masquerade),
    (b"match", xt::matching),
    (b"meta", meta::parse),
    (b"nat", nat::parse),
    (b"notrack", ct::notrack),
    (b"numgen", numgen::parse),
    (b"objref", objref::parse),
    (b"payload", payload::parse),
    (b"quota", quota::parse),
    (b"range", compare::range),
    (b"redir", nat::redirect),
    (b"reject", reject::parse),
    (b"rt", rt::parse),
    (b"target", xt::target),
];

/// An expression of a rule or of an element.
pub(crate) fn parse(attr: Attr<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let attrs = attr.nested();
    let name = attrs.need(NAME)?.text(NAME_MAX)?;
    let parser = PARSERS.iter().find(|(known, _)| *known == name);
    let (_, parser) = parser.ok_or(Errno::ENOENT)?;
    let data = attrs.get(DATA).map(|data| data.nested());
    parser(data.unwrap_or(Attrs::new(&[], attr.at)), scope)
}

/// An expression that every element of a set may have: it keeps a state.
pub(crate) fn parse_stateful(attr: Attr<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    const STATEFUL: [&[u8]; 3] = [b"counter", b"limit", b"quota"];
    // By name, before it is parsed: a dynset in a dynset in a dynset would go as deep as its program likes.
    let name = attr.nested().need(NAME)?.text(NAME_MAX)?;
    let known = PARSERS.iter().any(|(known, _)| *known == name);
    match STATEFUL.contains(&name) {
        true => parse(attr, scope),
        false => Err(if known { Errno::EOPNOTSUPP } else { Errno::ENOENT }.into()),
    }
}

/// Most expressions of an element (`NFT_SET_EXPR_MAX`).
const STATEFUL_MAX: usize = 2;

/// Stateful expressions: one, or a list of them.
pub(crate) fn parse_list(
    one: Option<Attr<'_>>,
    many: Option<Attr<'_>>,
    scope: &Scope<'_>,
) -> Result<Vec<Box<dyn Expr>>> {
    match (one, many) {
        (Some(one), _) => Ok(vec![parse_stateful(one, scope)?]),
        (None, Some(many)) => {
            let mut out = Vec::new();
            for item in many.nested().iter() {
                if out.len() == STATEFUL_MAX {
                    return Err(Errno::E2BIG.into());
                }
                if item.kind != crate::set::NFTA_LIST_ELEM {
                    return Err(Errno::EINVAL.into());
                }
                out.push(parse_stateful(item, scope)?);
            }
            Ok(out)
        }
        (None, None) => Ok(Vec::new()),
    }
}

/// An expression as an attribute.
pub(crate) fn dump(expr: &dyn Expr, kind: u16, out: &mut Writer, table: &Table) {
    out.nest(kind, |out| {
        out.text(NAME, expr.name().as_bytes());
        out.nest(DATA, |out| expr.dump(out, table));
    });
}

/// Stateful expressions as attributes: one, or a list.
pub(crate) fn dump_list(exprs: &[Box<dyn Expr>], one: u16, many: u16, out: &mut Writer, table: &Table) {
    match exprs {
        [] => {}
        [only] => dump(&**only, one, out, table),
        all => out.nest(many, |out| {
            for expr in all {
                dump(&**expr, crate::set::NFTA_LIST_ELEM, out, table);
            }
        }),
    }
}
