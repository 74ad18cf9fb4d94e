//! The stub: a few kilobytes of freestanding code in every guest process. It executes the decisions of the sentry.
//!
//! The code itself is C and assembly in `csrc/`, built by `build.rs` into a flat image ([`IMAGE`]) linked at
//! [`layout::STUB_TEXT`]. It runs on the guest's side: a guest can read it, change it and jump anywhere in it. So the
//! sentry does not trust it, and its seccomp filter bounds it.
//!
//! [`filter`] is that filter, [`launch`] starts the process from which all stub processes descend.
//! [`layout`] is the only definition of the addresses and of the slot shared with
//! the sentry; the C header is generated from it, with size and offset assertions.

#![expect(unsafe_code, reason = "zygote: a clone that must not allocate, and a jump out of this program")]

pub mod capture;
pub mod filter;
pub mod launch;
pub mod layout;
pub mod own_call;
pub mod xstate;
mod zygote;

/// The stub's image: mapped at [`layout::STUB_TEXT`], entered at offset 0 by a zygote.
pub static IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stub.bin"));

const _: () = assert!(IMAGE.len() <= layout::STUB_TEXT_SIZE as usize);

const _: () = assert!(
    layout::SIGNAL_FRAME == platform::SIGNAL_FRAME as u64
        && layout::SIGNAL_FRAME_FPSTATE == platform::SIGNAL_FRAME_FPSTATE as u64
);
