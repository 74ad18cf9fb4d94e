//! SO_TIMESTAMPING of datagram sockets, and what a sender says at level SOL_SOCKET: SO_TIMESTAMPING, SO_MARK, SCM_TXTIME. See
//! cmsg(3), socket(7), Documentation/networking/timestamping.rst. Times are the stack's; no device has a clock.

use crate::value::read_int;
use abi::{Errno, Result};
use netstack::datagram::SendControl;
use netstack::options::IpOptions;
use netstack::stamps;
use rights::Cap;
use socket::{Ancillary, NetNamespace, Options};
use vfs::Caller;

/// SCM_TXTIME.
const TXTIME: i32 = 61;
const RX_SOFTWARE: u32 = 1 << 3;
const OPT_STATS: u32 = 1 << 12;
const BIND_PHC: u32 = 1 << 15;
/// Flags of Linux 6.18 that ask for nothing that is here.
const TX_COMPLETION: u32 = 1 << 18;
/// All flags of Linux 6.18.
const KNOWN: u32 = (1 << 19) - 1;
const TX_HARDWARE: u32 = 1 << 0;

/// Sets the flags of a socket. Those of devices' clocks and of acknowledgements record nothing, as on Linux with devices that have
/// no clock.
pub(crate) fn set(o: &mut IpOptions, value: i32) -> Result<()> {
    let flags = value as u32;
    let without = |flag, needed| flags & flag != 0 && flags & needed == 0;
    if flags & !KNOWN != 0
        || without(stamps::OPT_ID_TCP, stamps::OPT_ID)
        || without(OPT_STATS, stamps::OPT_TSONLY)
    {
        return Err(Errno::EINVAL);
    }
    if flags & (BIND_PHC | TX_COMPLETION) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if o.timestamping & stamps::OPT_ID == 0 {
        o.stamp_id = 0;
    }
    o.timestamping = flags;
    Ok(())
}

/// Whether readers are told when datagrams came.
pub(crate) fn tells_arrivals(o: &IpOptions) -> bool {
    let wanted = RX_SOFTWARE | stamps::SOFTWARE;
    o.timestamping & wanted == wanted
}

fn may_mark(cx: &dyn Caller, net: &NetNamespace) -> bool {
    [Cap::NET_RAW, Cap::NET_ADMIN].iter().any(|cap| cx.creds().ns_capable(net.user_ns(), *cap))
}

/// Sets SO_RCVMARK: EPERM without a privilege over the network namespace.
pub(crate) fn may_ask_for_marks(cx: &dyn Caller, net: &NetNamespace) -> Result<()> {
    if may_mark(cx, net) { Ok(()) } else { Err(Errno::EPERM) }
}

/// Takes what a sender says of a datagram at level SOL_SOCKET.
pub(crate) fn of_sender(
    cx: &dyn Caller,
    net: &NetNamespace,
    options: &Options,
    messages: &[Ancillary],
    control: &mut SendControl,
) -> Result<()> {
    for m in messages.iter().filter(|m| m.level == libc::SOL_SOCKET) {
        match m.kind {
            libc::SO_MARK if !may_mark(cx, net) => return Err(Errno::EPERM),
            libc::SO_MARK if m.data.len() == 4 => control.mark = Some(read_int(&m.data)? as u32),
            libc::SO_TIMESTAMPING if m.data.len() == 4 => {
                let flags = read_int(&m.data)? as u32;
                if flags & !(stamps::TX | TX_HARDWARE | TX_COMPLETION) != 0 {
                    return Err(Errno::EINVAL);
                }
                control.stamps = flags;
            }
            // Nothing waits: no queueing discipline here sends at a time.
            TXTIME if options.has_txtime() && m.data.len() == 8 => {}
            _ => return Err(Errno::EINVAL),
        }
    }
    Ok(())
}
