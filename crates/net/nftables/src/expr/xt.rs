//! `match` and `target`: the matches and targets of iptables without an expression of their own. The crate `xtables`
//! has them.

use crate::attr::{Attrs, Result, Writer};
use crate::data::Verdict;
use crate::expression::{Expr, Flow, Place, Run};
use crate::family;
use crate::model::Table;
use crate::scope::Scope;
use abi::Errno;
use netfilter::{Family, Netfilter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use xtables::xt::{self, Context, Decision};

const NAME: u16 = 1;
const REVISION: u16 = 2;
const INFO: u16 = 3;
/// Longest name of a match, with its NUL (`XT_EXTENSION_MAXNAMELEN`).
const NAME_LEN: usize = 29;
/// Longest structure of a match that is kept.
const INFO_MAX: usize = 2048;

/// What both are made from.
struct Origin {
    name: Box<str>,
    revision: u8,
    info: Box<[u8]>,
    family: Family,
    table: Box<str>,
    protocol: (u16, bool),
    netfilter: Arc<Netfilter>,
    /// Hooks that it may be reached from, as far as they have been checked.
    fits: AtomicU8,
}

impl Origin {
    fn parse(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Origin> {
        let (Some(name), Some(revision), Some(info)) =
            (attrs.get(NAME), attrs.be32(REVISION)?, attrs.get(INFO))
        else {
            return Err(Errno::EINVAL.into());
        };
        let name = str::from_utf8(name.text(NAME_LEN)?).map_err(|_| Errno::ENOENT)?;
        let revision = u8::try_from(revision).map_err(|_| Errno::EINVAL)?;
        let (protocol, inverted) = scope.compat.unwrap_or_default();
        Ok(Origin {
            name: name.into(),
            revision,
            info: info.bytes(INFO_MAX)?.into(),
            family: xt_family(scope.table.family).ok_or(Errno::ENOENT)?,
            table: String::from_utf8_lossy(&scope.table.name).into(),
            protocol: (protocol, inverted),
            netfilter: scope.netfilter.clone(),
            fits: AtomicU8::new(0),
        })
    }

    /// Parses the structure for these points.
    fn with<T>(
        &self,
        points: &[netfilter::Point],
        parse: impl Fn(&Context<'_>, &str, u8, &[u8]) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let cx = Context {
            netfilter: &self.netfilter,
            family: self.family,
            table: &self.table,
            points,
            protocol: self.protocol.0,
            protocol_inverted: self.protocol.1,
        };
        // The padding that iptables gives a structure may be missing.
        let mut info = self.info.to_vec();
        info.resize(info.len().next_multiple_of(8), 0);
        parse(&cx, &self.name, self.revision, &info)
    }

    /// Asks for one hook, once.
    fn validate<T>(
        &self,
        place: Place,
        parse: impl Fn(&Context<'_>, &str, u8, &[u8]) -> Result<T, Errno>,
    ) -> Result<(), Errno> {
        if self.fits.load(Ordering::Relaxed) & place.bit() != 0 {
            return Ok(());
        }
        self.with(&[place.point()], parse)?;
        self.fits.fetch_or(place.bit(), Ordering::Relaxed);
        Ok(())
    }

    fn dump(&self, out: &mut Writer) {
        out.text(NAME, self.name.as_bytes());
        out.be32(REVISION, self.revision.into());
        out.put(INFO, &self.info);
    }
}

/// iptables has no tables for both families.
fn xt_family(of: u8) -> Option<Family> {
    match of {
        family::IPV4 => Some(Family::V4),
        family::IPV6 => Some(Family::V6),
        _ => None,
    }
}

struct Match {
    origin: Origin,
    inner: Box<dyn xt::Match>,
}

pub(super) fn matching(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let origin = Origin::parse(attrs, scope)?;
    let inner = origin.with(&[], <dyn xt::Match>::parse)?;
    Ok(Box::new(Match { origin, inner }))
}

impl Expr for Match {
    fn compat(&self) -> Option<(u16, bool)> {
        Some(self.origin.protocol)
    }
    fn name(&self) -> &'static str {
        "match"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        Flow::when(self.inner.matches(run.packet))
    }
    fn dump(&self, out: &mut Writer, _table: &Table) {
        self.origin.dump(out);
    }
    fn validate(&self, place: Place, _table: &Table) -> Result<(), Errno> {
        self.origin.validate(place, <dyn xt::Match>::parse)
    }
    fn weight(&self) -> usize {
        256 + 2 * self.origin.info.len()
    }
}

struct Target {
    origin: Origin,
    inner: Box<dyn xt::Target>,
}

pub(super) fn target(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let origin = Origin::parse(attrs, scope)?;
    // These are verdicts in nf_tables.
    if matches!(&*origin.name, "" | "ERROR" | "standard") {
        return Err(Errno::EINVAL.into());
    }
    let inner = origin.with(&[], <dyn xt::Target>::parse)?;
    Ok(Box::new(Target { origin, inner }))
}

impl Expr for Target {
    fn compat(&self) -> Option<(u16, bool)> {
        Some(self.origin.protocol)
    }
    fn name(&self) -> &'static str {
        "target"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        match self.inner.run(run.packet) {
            Decision::Continue => Flow::Next,
            Decision::Accept => Flow::Verdict(Verdict::Accept),
            Decision::Drop => Flow::Verdict(Verdict::Drop),
            Decision::Return => Flow::Verdict(Verdict::Return),
        }
    }
    fn dump(&self, out: &mut Writer, _table: &Table) {
        self.origin.dump(out);
    }
    fn validate(&self, place: Place, _table: &Table) -> Result<(), Errno> {
        self.origin.validate(place, <dyn xt::Target>::parse)
    }
    fn weight(&self) -> usize {
        256 + 2 * self.origin.info.len()
    }
}

/// Whether there is such a match or target; ENOENT for no such name, EPROTONOSUPPORT for no such revision.
pub(crate) fn revision(name: &[u8], revision: u32, target: bool, of: u8) -> Result<(), Errno> {
    let family = xt_family(of).ok_or(Errno::ENOENT)?;
    let name = str::from_utf8(name).map_err(|_| Errno::ENOENT)?;
    let revision = u8::try_from(revision).map_err(|_| Errno::EPROTONOSUPPORT)?;
    let known = match target {
        true => <dyn xt::Target>::revision(family, name, revision),
        false => <dyn xt::Match>::revision(family, name, revision),
    };
    known.map(drop)
}
