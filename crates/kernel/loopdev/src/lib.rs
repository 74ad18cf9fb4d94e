//! Loop devices: files as block devices. See loop(4).
//!
//! A container has devices of its own. /dev/loop-control (major 10, minor 237) allocates them, and they are block
//! devices of major 7. Reads and writes of a device go to the file that is attached to it; nothing is cached between
//! them. Block devices cannot be mapped. File systems are mounted from one, or from a file, by way of an [`Image`].
//!
//! Neighbours: `vfs` (files and drivers), `container` (owns a [`Loops`] and the [`LoopsTable`]). Locks: the table of
//! devices, then a device's state; all are leaves otherwise, and files are neither used nor dropped with one held. A checkpoint keeps the
//! file's place and [`info::Info64`] for each device.

#![forbid(unsafe_code)]

mod block;
mod control;
mod device;
mod image;
mod info;

use crate::block::BlockFile;
use crate::control::ControlFile;
pub use crate::device::{About, Attached, Loops, LoopsTable};
pub use crate::image::Image;
use abi::Errno;
use abi::stat::minor;
use std::sync::Arc;
use vfs::file::devices::{Devices, Opened};
use vfs::{Caller, InodeRef, OpenFile, Path};

/// Major number of loop devices.
const MAJOR: u32 = 7;
/// Major number of miscellaneous devices, and the minor number of /dev/loop-control.
const CONTROL: (u32, u32) = (10, 237);
/// Most devices of a container.
const DEVICES: u32 = 256;

/// Registers the drivers. A caller opens the devices of its container.
pub fn register(devices: &Devices, table: &Arc<LoopsTable>) {
    let loops = table.clone();
    let open = move |cx: &dyn Caller, _: &Path, inode: &InodeRef, _: i32| {
        let number = minor(inode.attr()?.rdev);
        let device = loops.of(cx)?.at(number)?;
        Ok(Opened::Ops(Arc::new(BlockFile::open(device))))
    };
    devices.register_block("loop", MAJOR, 0..=DEVICES - 1, Arc::new(open));
    let loops = table.clone();
    let open = move |cx: &dyn Caller, _: &Path, _: &InodeRef, _: i32| {
        Ok(Opened::Ops(Arc::new(ControlFile(loops.of(cx)?))))
    };
    devices.register_char("misc", CONTROL.0, CONTROL.1..=CONTROL.1, Arc::new(open));
}

/// True for requests on a loop device that name a file by a descriptor, for [`attach`]: LOOP_SET_FD, LOOP_CHANGE_FD and
/// LOOP_CONFIGURE.
pub fn names_file(file: &OpenFile, cmd: u32) -> bool {
    file.ops.as_any().is::<BlockFile>() && block::ATTACHING.contains(&cmd)
}

/// Carries out a request that [`names_file`], with the file that it names.
pub fn attach(
    cx: &dyn Caller,
    file: &OpenFile,
    mem: &mut dyn caller::UserMemory,
    cmd: u32,
    arg: u64,
    backing: &Arc<OpenFile>,
) -> abi::Result<()> {
    let block: &BlockFile = file.ops.as_any().downcast_ref().ok_or(Errno::ENOTTY)?;
    block.attach(cx, file, mem, (cmd, arg), backing)
}

/// The number of the descriptor that such a request names.
pub fn named_fd(mem: &mut dyn caller::UserMemory, cmd: u32, arg: u64) -> abi::Result<i32> {
    if cmd == block::LOOP_CONFIGURE { mem.read_value(arg) } else { Ok(arg as i32) }
}
