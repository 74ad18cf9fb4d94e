//! Generic netlink: the controller, which knows families by name. See CTRL_CMD_GETFAMILY in linux/genetlink.h. It is the only
//! family.

use super::asker::Asker;
use super::error::{Refusal, Result};
use super::wire::{self, Message};
use abi::Errno;

/// GENL_ID_CTRL.
const CONTROLLER: u16 = 16;
/// Length of `struct genlmsghdr`.
const GENL: usize = 4;
/// CTRL_CMD_*.
const NEWFAMILY: u8 = 1;
const GETFAMILY: u8 = 3;
const GETPOLICY: u8 = 10;
/// CTRL_ATTR_*.
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const VERSION: u16 = 3;
const HDRSIZE: u16 = 4;
const MAXATTR: u16 = 5;
const OPS: u16 = 6;
const MCAST_GROUPS: u16 = 7;
const OP_ID: u16 = 1;
const OP_FLAGS: u16 = 2;
const GROUP_NAME: u16 = 1;
const GROUP_ID: u16 = 2;
/// The controller's version, attributes, and group.
const OWN_VERSION: u32 = 2;
const OWN_MAXATTR: u32 = 10;
const NOTIFY: u32 = 16;
/// GENL_CMD_CAP_DO, GENL_CMD_CAP_DUMP and GENL_CMD_CAP_HASPOL.
const DO: u32 = 2;
const DUMP: u32 = 4;
const POLICY: u32 = 8;
const NAME: &str = "nlctrl";

/// The datagrams that answer a request.
pub(super) fn answer(asker: &Asker<'_>) -> Result<Option<Vec<Vec<u8>>>> {
    if asker.header.kind != CONTROLLER {
        return Err(Errno::ENOENT.into());
    }
    if asker.body().len() < GENL {
        return Err(Errno::EINVAL.into());
    }
    match asker.byte(0) {
        GETFAMILY if asker.dumps() => Ok(Some(asker.dump(vec![describe(asker)]))),
        GETFAMILY => get(asker).map(|message| Some(vec![message])),
        // The policies of the controller's own commands.
        GETPOLICY => Err(Errno::EOPNOTSUPP.into()),
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}

/// One family, by number or name.
fn get(asker: &Asker<'_>) -> Result<Vec<u8>> {
    let id = wire::attribute(asker.message, GENL, FAMILY_ID);
    let name = wire::attribute(asker.message, GENL, FAMILY_NAME);
    let found = match (name, id) {
        (Some(name), _) => name.strip_suffix(&[0]).unwrap_or(name) == NAME.as_bytes(),
        (None, Some(id)) => id == CONTROLLER.to_ne_bytes(),
        (None, None) => return Err(Refusal::from(Errno::EINVAL)),
    };
    if found { Ok(describe(asker)) } else { Err(Errno::ENOENT.into()) }
}

/// The controller.
fn describe(asker: &Asker<'_>) -> Vec<u8> {
    let op = |command: u8, flags: u32| {
        let id = wire::nested(OP_ID, &u32::from(command).to_ne_bytes());
        [id, wire::nested(OP_FLAGS, &flags.to_ne_bytes())].concat()
    };
    let ops = wire::nested(1, &op(GETFAMILY, DO | DUMP | POLICY));
    let group = [wire::nested(GROUP_ID, &NOTIFY.to_ne_bytes()), wire::nested(GROUP_NAME, b"notify\0")];
    let message: Message = asker.reply(CONTROLLER, 0);
    message
        .fixed(&[NEWFAMILY, 2, 0, 0])
        .text(FAMILY_NAME, NAME)
        .attribute(FAMILY_ID, &CONTROLLER.to_ne_bytes())
        .number(VERSION, OWN_VERSION)
        .number(HDRSIZE, 0)
        .number(MAXATTR, OWN_MAXATTR)
        .attribute(OPS, &ops)
        .attribute(MCAST_GROUPS, &wire::nested(1, &group.concat()))
        .done()
}
