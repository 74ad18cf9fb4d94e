//! NETLINK_XFRM: IPsec, of which there are no states and no policies here. Lists are empty, what is asked for by its
//! name does not exist, and nothing can be added (EOPNOTSUPP).

use super::asker::Asker;
use super::error::Result;
use abi::Errno;

/// The protocol of such sockets.
pub(super) const NETLINK_XFRM: i32 = 6;

/// XFRM_MSG_NEWSA, the first of the requests, and XFRM_MSG_GETDEFAULT, the last.
const FIRST: u16 = 0x10;
const LAST: u16 = 0x28;
const DELSA: u16 = 0x11;
const GETSA: u16 = 0x12;
const DELPOLICY: u16 = 0x14;
const GETPOLICY: u16 = 0x15;
const FLUSHSA: u16 = 0x1c;
const FLUSHPOLICY: u16 = 0x1d;
/// Bytes of `struct xfrm_usersa_id`, with the protocol near its end, and of `struct xfrm_userpolicy_id`, with the
/// direction.
const STATE: usize = 24;
const PROTOCOL: usize = 22;
const POLICY: usize = 64;
const DIRECTION: usize = 60;
/// AH, ESP, IPComp, routing headers and destination options of Mobile IPv6.
const PROTOCOLS: [u8; 5] = [51, 50, 108, 43, 60];

/// Answers a request; `None` asks for a mere acknowledgement.
pub(super) fn answer(asker: &Asker<'_>) -> Result<Option<Vec<Vec<u8>>>> {
    let (kind, len) = (asker.header.kind, asker.body().len());
    if !(FIRST..=LAST).contains(&kind) {
        return Err(Errno::EINVAL.into());
    }
    if !asker.is_admin() {
        return Err(Errno::EPERM.into());
    }
    match kind {
        GETSA | GETPOLICY if asker.dumps() => Ok(Some(asker.dump(Vec::new()))),
        GETSA | DELSA if len < STATE || !PROTOCOLS.contains(&asker.byte(PROTOCOL)) => {
            Err(Errno::EINVAL.into())
        }
        GETSA | DELSA => Err(Errno::ESRCH.into()),
        GETPOLICY | DELPOLICY if len < POLICY || asker.byte(DIRECTION) > 2 => Err(Errno::EINVAL.into()),
        GETPOLICY | DELPOLICY => Err(Errno::ENOENT.into()),
        FLUSHSA if len == 0 => Err(Errno::EINVAL.into()),
        FLUSHSA | FLUSHPOLICY => Ok(None),
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}
