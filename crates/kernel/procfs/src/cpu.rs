//! Processors: CPUID, /proc/cpuinfo.

use abi::Result;
use core::arch::x86_64::__cpuid_count;
use kernfs::At;
use std::fmt::Write;
use std::sync::OnceLock;

/// What CPUID tells once and for all.
pub struct Facts {
    vendor: String,
    family: u32,
    model: u32,
    stepping: u32,
    name: String,
    level: u32,
    khz: u64,
    flags: String,
    cache_kb: u32,
    clflush: u32,
    phys: u32,
    virt: u32,
}

fn words(parts: &[u32]) -> String {
    let bytes: Vec<u8> = parts.iter().flat_map(|w| w.to_le_bytes()).take_while(|&b| b != 0).collect();
    String::from_utf8_lossy(&bytes).trim().to_string()
}

/// Reads CPUID.
pub fn facts() -> &'static Facts {
    static FACTS: OnceLock<Facts> = OnceLock::new();
    FACTS.get_or_init(|| {
        let l0 = __cpuid_count(0, 0);
        let l1 = __cpuid_count(1, 0);
        let ext = __cpuid_count(0x8000_0000, 0).eax;
        let mut name = String::new();
        if ext >= 0x8000_0004 {
            let w: Vec<u32> = (0x8000_0002..=0x8000_0004)
                .map(|l| __cpuid_count(l, 0))
                .flat_map(|r| [r.eax, r.ebx, r.ecx, r.edx])
                .collect();
            name = words(&w);
        }
        let cache_kb = if ext >= 0x8000_0006 { __cpuid_count(0x8000_0006, 0).ecx >> 16 } else { 0 };
        let sizes = if ext >= 0x8000_0008 { __cpuid_count(0x8000_0008, 0).eax } else { 0x3024 };
        let base = l1.eax >> 8 & 0xf;
        let family = if base == 0xf { base + (l1.eax >> 20 & 0xff) } else { base };
        let wide = base == 0xf || base == 6;
        let model = (l1.eax >> 4 & 0xf) | if wide { l1.eax >> 12 & 0xf0 } else { 0 };
        Facts {
            vendor: words(&[l0.ebx, l0.edx, l0.ecx]),
            family,
            model,
            stepping: l1.eax & 0xf,
            name,
            level: l0.eax,
            khz: hostsys::cpu::tsc_per_microsecond() * 1000,
            flags: crate::cpu_flags::flags(),
            cache_kb,
            clflush: (l1.ebx >> 8 & 0xff) * 8,
            phys: sizes & 0xff,
            virt: sizes >> 8 & 0xff,
        }
    })
}

/// /proc/cpuinfo.
pub fn cpuinfo(at: &At) -> Result<Vec<u8>> {
    let f = facts();
    let online = at.limits().online();
    let cpus = online.count();
    let mut s = String::new();
    for i in online.iter() {
        let _ = write!(
            s,
            "processor\t: {i}\nvendor_id\t: {}\ncpu family\t: {}\nmodel\t\t: {}\nmodel name\t: {}\n\
             stepping\t: {}\nmicrocode\t: 0xffffffff\ncpu MHz\t\t: {}.{:03}\ncache size\t: {} KB\n\
             physical id\t: 0\nsiblings\t: {cpus}\ncore id\t\t: {i}\ncpu cores\t: {cpus}\napicid\t\t: {i}\n\
             initial apicid\t: {i}\nfpu\t\t: yes\nfpu_exception\t: yes\ncpuid level\t: {}\nwp\t\t: yes\n\
             flags\t\t: {}\nbugs\t\t:\nbogomips\t: {}.{:02}\nclflush size\t: {}\ncache_alignment\t: {}\n\
             address sizes\t: {} bits physical, {} bits virtual\npower management:\n\n",
            f.vendor,
            f.family,
            f.model,
            f.name,
            f.stepping,
            f.khz / 1000,
            f.khz % 1000,
            f.cache_kb,
            f.level,
            f.flags,
            f.khz / 500,
            f.khz / 5 % 100,
            f.clflush,
            f.clflush,
            f.phys,
            f.virt,
        );
    }
    Ok(s.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_agree_with_the_host() {
        let Ok(host) = std::fs::read_to_string("/proc/cpuinfo") else { return };
        let Some(line) = host.lines().find(|l| l.starts_with("flags")) else { return };
        let theirs: std::collections::HashSet<_> = line.split(": ").nth(1).unwrap_or("").split(' ').collect();
        for f in ["fpu", "sse2", "avx", "avx2", "aes", "lm", "cx16", "popcnt", "erms", "fsgsbase", "sha_ni"] {
            let ours = facts().flags.split(' ').any(|x| x == f);
            assert_eq!(ours, theirs.contains(f), "{f}");
        }
    }
}
