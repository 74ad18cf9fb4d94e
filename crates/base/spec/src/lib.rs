//! The specification of a sandbox: the contract between the runtime and the kernel.
//!
//! The runtime makes a [`SandboxSpec`] from a bundle or a command line, has the gofer open the mount points, and hands
//! the specification together with a list of descriptors to the kernel. Everything here is plain data, already
//! validated by the runtime: descriptor fields are indices into that list, and each index is used by one field only,
//! save for the three standard streams, which may share one.
//!
//! Every type is `Clone`, `PartialEq` and (de)serializable, holds no host handle, and makes no host call.

#![forbid(unsafe_code)]

mod descriptors;
mod mount;
mod network;
mod process;
mod sandbox;
mod start_error;

pub use descriptors::FdIndex;
pub use mount::{Atime, FILE_ENTRY, FileAccess, HostUds, MountSpec, Overlay, PropagationType};
pub use network::{Capture, Interface, Interfaces, LinkHeader, Neighbour, Network, Route};
pub use process::{
    CapabilitySets, ProcessInfo, ProcessSpec, Refusal, RlimitSpec, SchedulerSpec, SeccompFilter, Target,
    WindowSize,
};
pub use sandbox::{
    AfterCheckpoint, DeviceKind, DeviceRule, DeviceSpec, ImageSpec, PlatformName, RootSpec, SandboxSpec,
    TraceSpec,
};
pub use start_error::{StartError, StartErrorKind};
