//! mount(2) and fsconfig(2) of type `fuse`. See mount.fuse(8), "Options".

use crate::conn::{Connection, Terms};
use crate::device::Device;
use crate::fs::FuseFs;
use crate::wire;
use abi::{Errno, Result};
use caller::quota::Kind;
use mounts::fs_parameters::{Parameter, ParameterSpec, Takes, Value, is_octal, is_u32, number};
use mounts::fstypes::Request;
use std::fmt::Write;
use std::sync::Arc;
use tmpfs::MemFiles;
use vfs::{Caller, OpenFile, SuperBlock};

/// The parameters.
pub const KNOWN: &[ParameterSpec] = &[
    ("fd", Takes::Place),
    ("rootmode", Takes::Checked(is_octal)),
    ("user_id", Takes::Checked(is_u32)),
    ("group_id", Takes::Checked(is_u32)),
    ("default_permissions", Takes::Flag),
    ("allow_other", Takes::Flag),
    ("max_read", Takes::Checked(is_u32)),
    ("subtype", Takes::Text),
];

/// The device file of a mount.
enum Fd {
    Number(i32),
    File(Arc<OpenFile>),
}

/// What is to be mounted.
#[derive(Default)]
struct Config {
    fd: Option<Fd>,
    root_mode: Option<u32>,
    user_id: Option<u32>,
    group_id: Option<u32>,
    default_permissions: bool,
    allow_other: bool,
    max_read: Option<u32>,
    subtype: Option<String>,
}

fn text(value: &Value) -> Result<&str> {
    match value {
        Value::String(s) => std::str::from_utf8(s).map_err(|_| Errno::EINVAL),
        _ => Err(Errno::EINVAL),
    }
}

fn number_of(value: &Value) -> Result<u32> {
    number(text(value)?).and_then(|n| u32::try_from(n).ok()).ok_or(Errno::EINVAL)
}

impl Config {
    fn parse(parameters: &[Parameter]) -> Result<Config> {
        let mut c = Config::default();
        for (name, value) in parameters {
            match &name[..] {
                b"fd" => {
                    c.fd = Some(match value {
                        Value::File(file) => Fd::File(file.clone()),
                        value => Fd::Number(i32::try_from(number_of(value)?).map_err(|_| Errno::EINVAL)?),
                    });
                }
                b"rootmode" => {
                    let mode = u32::from_str_radix(text(value)?, 8).map_err(|_| Errno::EINVAL)?;
                    let raw = wire::RawAttr { mode, ..wire::RawAttr::default() };
                    raw.check().map_err(|_| Errno::EINVAL)?;
                    c.root_mode = Some(mode);
                }
                b"user_id" => c.user_id = Some(number_of(value)?),
                b"group_id" => c.group_id = Some(number_of(value)?),
                b"default_permissions" => c.default_permissions = true,
                b"allow_other" => c.allow_other = true,
                b"max_read" => c.max_read = Some(number_of(value)?),
                b"subtype" if c.subtype.is_none() => c.subtype = Some(text(value)?.to_owned()),
                _ => return Err(Errno::EINVAL),
            }
        }
        Ok(c)
    }

    /// As /proc/mounts shows them.
    fn shown(&self, user_id: u32, group_id: u32) -> String {
        let mut shown = format!("user_id={user_id},group_id={group_id}");
        if self.default_permissions {
            shown.push_str(",default_permissions");
        }
        if self.allow_other {
            shown.push_str(",allow_other");
        }
        if let Some(max_read) = self.max_read {
            let _ = write!(shown, ",max_read={}", max_read.max(wire::PAGE));
        }
        shown
    }
}

/// Makes a file system. EINVAL for a descriptor that is not a new one
/// of /dev/fuse, opened in the user namespace that mounts it.
pub fn mount(cx: &dyn Caller, request: &Request, memory: &Arc<MemFiles>) -> Result<Arc<SuperBlock>> {
    let c = Config::parse(&request.parameters)?;
    let (Some(fd), Some(root_mode), Some(user_id), Some(group_id)) =
        (&c.fd, c.root_mode, c.user_id, c.group_id)
    else {
        return Err(Errno::EINVAL);
    };
    let creds = cx.creds();
    let user_ns = creds.user_ns.clone();
    let user = user_ns.user(user_id).ok_or(Errno::EINVAL)?;
    let group = user_ns.group(group_id).ok_or(Errno::EINVAL)?;
    let file = match fd {
        Fd::File(file) => file.clone(),
        Fd::Number(number) => cx.descriptor(*number).map_err(|_| Errno::EINVAL)?,
    };
    let device = Device::of(&file).ok_or(Errno::EINVAL)?;
    if !Arc::ptr_eq(&device.user_ns, &user_ns) {
        return Err(Errno::EINVAL);
    }
    if let Some(served) = device.served() {
        return served;
    }
    let charge = cx.quotas().account(creds.uid).charge(Kind::FuseConnections, 1).ok_or(Errno::ENOMEM)?;
    let conn = Connection::new(Terms {
        clock: cx.resources().clock,
        user_ns,
        pid_ns: cx.pid_ns(),
        user,
        group,
        allow_other: c.allow_other,
        default_permissions: c.default_permissions,
        max_read: c.max_read.unwrap_or(u32::MAX).max(wire::PAGE),
        _charge: charge,
    });
    let dev = cx.resources().device_numbers.alloc();
    let options = c.shown(user_id, group_id);
    let fs = FuseFs::new(&conn, dev, root_mode, c.subtype, options, memory);
    let weak = Arc::downgrade(&fs);
    let sb = SuperBlock::new(fs);
    device.attach(&conn, Arc::downgrade(&sb), weak)?;
    Ok(sb)
}
