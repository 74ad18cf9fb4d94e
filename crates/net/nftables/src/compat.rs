//! `NFNL_SUBSYS_NFT_COMPAT`: the revisions of iptables' matches and targets.

use crate::attr::{Failure, Result};
use crate::message::{COMPAT, Reply, Request};
use crate::{Asker, Nftables};
use abi::Errno;

const NAME: u16 = 1;
const REVISION: u16 = 2;
const TYPE: u16 = 3;
/// Longest name (`XT_EXTENSION_MAXNAMELEN`).
const NAME_LEN: usize = 29;

impl Nftables {
    /// Answers whether a match or a target exists in a revision.
    pub fn compat(&self, request: &Request<'_>, asker: &Asker<'_>) -> Result<Vec<Vec<u8>>, Failure> {
        let attrs = request.attrs();
        if request.number() != 0 {
            return Err(Errno::EINVAL.into());
        }
        let (name, revision) = (attrs.need(NAME)?.text(NAME_LEN)?, attrs.need(REVISION)?.be32()?);
        let kind = attrs.need(TYPE)?.be32()?;
        if kind > 1 {
            return Err(Errno::EINVAL.into());
        }
        crate::expr::xt::revision(name, revision, kind == 1, request.family())?;
        let reply = Reply::to(request, asker.port, 0);
        Ok(vec![reply.of(COMPAT, 0, request.family(), |out| {
            out.text(NAME, name);
            out.be32(REVISION, revision);
            out.be32(TYPE, kind);
        })])
    }
}
