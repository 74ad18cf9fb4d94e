//! `log`: a line for the kernel's log.

use crate::attr::{Attrs, Result, Writer};
use crate::expression::{Expr, Flow, Run};
use crate::model::Table;
use crate::scope::Scope;
use abi::Errno;
use netfilter::Action;

const GROUP: u16 = 1;
const PREFIX: u16 = 2;
const SNAPLEN: u16 = 3;
const QTHRESHOLD: u16 = 4;
const LEVEL: u16 = 5;
const FLAGS: u16 = 6;
const PREFIX_MAX: usize = 128;
const WARNING: u32 = 4;
const AUDIT: u32 = 8;
/// `NF_LOG_MASK`.
const FLAGS_ALL: u32 = 0x2f;

enum To {
    /// A level, and flags for more detail.
    Kernel(u32, u32),
    /// A group of NFNETLINK_LOG, which has no listeners here.
    Group(u16, Option<u32>, Option<u16>),
}

struct Log {
    to: To,
    prefix: Option<Box<[u8]>>,
}

pub(super) fn parse(attrs: Attrs<'_>, _scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let prefix = attrs.get(PREFIX).map(|prefix| prefix.text(PREFIX_MAX)).transpose()?;
    let level = attrs.be32(LEVEL)?;
    let to = match attrs.get(GROUP) {
        Some(_) if level.is_some() => return Err(Errno::EINVAL.into()),
        Some(group) => {
            let queue = attrs.get(QTHRESHOLD).map(|attr| attr.be16()).transpose()?;
            To::Group(group.be16()?, attrs.be32(SNAPLEN)?, queue)
        }
        None => {
            let level = level.unwrap_or(WARNING);
            let flags = attrs.be32(FLAGS)?.unwrap_or(0);
            if level > AUDIT || flags & !FLAGS_ALL != 0 {
                return Err(Errno::EINVAL.into());
            }
            To::Kernel(level, flags)
        }
    };
    Ok(Box::new(Log { to, prefix: prefix.filter(|prefix| !prefix.is_empty()).map(Box::from) }))
}

impl Expr for Log {
    fn name(&self) -> &'static str {
        "log"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        let To::Kernel(level, flags) = self.to else { return Flow::Next };
        if level == AUDIT {
            // There is no audit.
            return Flow::Next;
        }
        let packet = &run.packet;
        let prefix = String::from_utf8_lossy(self.prefix.as_deref().unwrap_or_default());
        let text = xtables::xt::log_line(packet, &prefix, flags as u8);
        packet.netfilter.defer(Action::Log { level: level as u8, text });
        Flow::Next
    }
    fn dump(&self, out: &mut Writer, _table: &Table) {
        if let Some(prefix) = &self.prefix {
            out.text(PREFIX, prefix);
        }
        match self.to {
            To::Group(group, snaplen, queue) => {
                out.be16(GROUP, group);
                if let Some(len) = snaplen.filter(|len| *len != 0) {
                    out.be32(SNAPLEN, len);
                }
                if let Some(queue) = queue.filter(|queue| *queue != 0) {
                    out.be16(QTHRESHOLD, queue);
                }
            }
            To::Kernel(level, flags) => {
                out.be32(LEVEL, level);
                if flags != 0 {
                    out.be32(FLAGS, flags);
                }
            }
        }
    }
    fn weight(&self) -> usize {
        self.prefix.as_ref().map_or(0, |prefix| prefix.len())
    }
}
