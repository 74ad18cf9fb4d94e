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

use crate::attr::{Attr, Attrs, NFTA_LIST_ELEM, Result};
use crate::expression::{DATA, Expr, NAME};
use crate::scope::Scope;
use abi::Errno;

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
                if item.kind != NFTA_LIST_ELEM {
                    return Err(Errno::EINVAL.into());
                }
                out.push(parse_stateful(item, scope)?);
            }
            Ok(out)
        }
        (None, None) => Ok(Vec::new()),
    }
}
