//! What an image has to say of the machine and of this program, so that it goes on only where it can.

use image::About;
use platform::Platform;
use sha2::{Digest, Sha256};

/// Features of the processor that concern the kernel alone: programs cannot use them, and microcode changes them.
const OF_THE_KERNEL: &[&str] = &[
    "hypervisor",
    "md_clear",
    "arch_capabilities",
    "flush_l1d",
    "constant_tsc",
    "rep_good",
    "nopl",
    "nonstop_tsc",
    "cpuid",
    "osxsave",
    "ospke",
    "smep",
    "smap",
    "umip",
    "pcid",
    "invpcid",
    "vme",
    "pse",
    "pge",
    "mtrr",
    "pat",
    "vmx",
    "svm",
    "dtes64",
    "ds_cpl",
    "est",
    "tm2",
    "pdcm",
    "dca",
    "x2apic",
    "tsc_deadline_timer",
    "xsaves",
];

/// This sandbox.
pub(crate) fn here(platform: &dyn Platform) -> About {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let flags = procfs::cpu_flags();
    let features = flags.split_whitespace().filter(|flag| !OF_THE_KERNEL.contains(flag));
    About {
        version: env!("CARGO_PKG_VERSION").into(),
        build: hostsys::own::build_id().unwrap_or_default(),
        platform: platform.name().into(),
        vdso: hostsys::own::vdso().map(|vdso| hex(&Sha256::digest(vdso))).unwrap_or_default(),
        features: features.map(String::from).collect(),
        components: hostsys::cpu::extended_components(),
        xstate: platform.limits().xstate_size as u64,
        pages: 0,
        layers: Vec::new(),
        made: u64::try_from(hostsys::fs::now().sec).unwrap_or(0),
        ends_connections: false,
    }
}
