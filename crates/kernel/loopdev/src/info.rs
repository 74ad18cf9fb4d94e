//! The structures that describe a device to programs and back: `struct loop_info`, `loop_info64` and `loop_config`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a name.
pub(crate) const NAME: usize = 64;

/// `struct loop_info64`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Info64 {
    /// Device of the file's file system.
    pub device: u64,
    /// Inode number of the file.
    pub inode: u64,
    /// Device number of the file, if it is a device.
    pub rdevice: u64,
    /// Where in the file the device begins.
    pub offset: u64,
    /// Most bytes of the device; 0 for all that the file has.
    pub size_limit: u64,
    /// Number of the device.
    pub number: u32,
    /// No encryption is known: 0.
    pub encrypt_type: u32,
    /// Bytes of `encrypt_key`.
    pub encrypt_key_size: u32,
    /// LO_FLAGS_* bits.
    pub flags: u32,
    /// What the program calls the file.
    pub file_name: [u8; NAME],
    /// Unused.
    pub crypt_name: [u8; NAME],
    /// Unused.
    pub encrypt_key: [u8; 32],
    /// Unused.
    pub init: [u64; 2],
}

/// `struct loop_info` of older programs.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Info {
    pub number: i32,
    pad: u32,
    pub device: u64,
    pub inode: u64,
    pub rdevice: u64,
    pub offset: i32,
    pub encrypt_type: i32,
    pub encrypt_key_size: i32,
    pub flags: i32,
    pub name: [u8; NAME],
    pub encrypt_key: [u8; 32],
    pub init: [u64; 2],
    reserved: [u8; 8],
}

/// `struct loop_config`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Config {
    pub fd: u32,
    pub block_size: u32,
    pub info: Info64,
    reserved: [u64; 8],
}

impl Default for Info64 {
    fn default() -> Info64 {
        Info64 {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: 0,
            file_name: [0; NAME],
            crypt_name: [0; NAME],
            encrypt_key: [0; 32],
            init: [0; 2],
        }
    }
}

impl Info {
    /// As the newer form has it.
    pub(crate) fn to_64(self) -> Info64 {
        Info64 {
            offset: i64::from(self.offset) as u64,
            encrypt_type: self.encrypt_type as u32,
            encrypt_key_size: self.encrypt_key_size as u32,
            flags: self.flags as u32,
            file_name: self.name,
            ..Info64::default()
        }
    }

    /// The older form; `None` when a value does not fit.
    pub(crate) fn of_64(info: &Info64) -> Option<Info> {
        Some(Info {
            number: info.number as i32,
            pad: 0,
            device: info.device,
            inode: info.inode,
            rdevice: info.rdevice,
            offset: i32::try_from(info.offset).ok()?,
            encrypt_type: info.encrypt_type as i32,
            encrypt_key_size: info.encrypt_key_size as i32,
            flags: info.flags as i32,
            name: info.file_name,
            encrypt_key: info.encrypt_key,
            init: info.init,
            reserved: [0; 8],
        })
    }
}
