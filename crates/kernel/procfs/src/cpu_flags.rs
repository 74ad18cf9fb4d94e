//! The flags line of /proc/cpuinfo: CPUID bits under the kernel's names for them.

use core::arch::x86_64::__cpuid_count;

/// Names of the bits of one register, from bit 0; empty for bits that have none.
struct Word {
    leaf: u32,
    sub: u32,
    /// 0 eax, 1 ebx, 2 ecx, 3 edx.
    reg: usize,
    names: &'static str,
}

// In the order in which the kernel prints them; `-` is a bit without a name.
const WORDS: &[Word] = &[
    Word {
        leaf: 1,
        sub: 0,
        reg: 3,
        names: "fpu vme de pse tsc msr pae mce cx8 apic - sep mtrr pge mca cmov pat pse36 pn clflush - dts acpi mmx \
                fxsr sse sse2 ss ht tm ia64 pbe",
    },
    Word {
        leaf: 0x8000_0001,
        sub: 0,
        reg: 3,
        names: "- - - - - - - - - - - syscall - - - - - - - mp nx - mmxext - - fxsr_opt pdpe1gb rdtscp - lm 3dnowext \
                3dnow",
    },
    Word {
        leaf: 1,
        sub: 0,
        reg: 2,
        names: "pni pclmulqdq dtes64 monitor ds_cpl vmx smx est tm2 ssse3 cid sdbg fma cx16 xtpr pdcm - pcid dca \
                sse4_1 sse4_2 x2apic movbe popcnt tsc_deadline_timer aes xsave - avx f16c rdrand hypervisor",
    },
    Word {
        leaf: 0x8000_0001,
        sub: 0,
        reg: 2,
        names: "lahf_lm cmp_legacy svm extapic cr8_legacy abm sse4a misalignsse 3dnowprefetch osvw ibs xop skinit wdt \
                - lwp fma4 tce - nodeid_msr - tbm topoext perfctr_core perfctr_nb - bpext ptsc perfctr_llc mwaitx - -",
    },
    Word {
        leaf: 7,
        sub: 0,
        reg: 1,
        names: "fsgsbase tsc_adjust sgx bmi1 hle avx2 - smep bmi2 erms invpcid rtm cqm - mpx rdt_a avx512f avx512dq \
                rdseed adx smap avx512ifma - clflushopt clwb intel_pt avx512pf avx512er avx512cd sha_ni avx512bw \
                avx512vl",
    },
    Word { leaf: 0xd, sub: 1, reg: 0, names: "xsaveopt xsavec xgetbv1 xsaves" },
    Word {
        leaf: 7,
        sub: 1,
        reg: 0,
        names: "- - - - avx_vnni avx512_bf16 - - - - - - - - - - - - - - - - - avx_ifma",
    },
    Word { leaf: 0x8000_0008, sub: 0, reg: 1, names: "clzero irperf xsaveerptr - rdpru - - - - wbnoinvd" },
    Word {
        leaf: 7,
        sub: 0,
        reg: 2,
        names: "- avx512vbmi umip pku ospke waitpkg avx512_vbmi2 - gfni vaes vpclmulqdq avx512_vnni avx512_bitalg tme \
                avx512_vpopcntdq - la57 - - - - - rdpid - bus_lock_detect cldemote - movdiri movdir64b",
    },
    Word {
        leaf: 7,
        sub: 0,
        reg: 3,
        names: "- - avx512_4vnniw avx512_4fmaps fsrm - - - avx512_vp2intersect - md_clear - - - serialize - - - - - \
                - - amx_bf16 avx512_fp16 amx_tile amx_int8 - - flush_l1d arch_capabilities",
    },
];

fn exists(leaf: u32, sub: u32) -> bool {
    let base = leaf & 0x8000_0000;
    if __cpuid_count(base, 0).eax < leaf {
        return false;
    }
    leaf != 7 || sub <= __cpuid_count(7, 0).eax
}

/// All of them, with one space between.
pub fn flags() -> String {
    let mut out: Vec<&str> = Vec::new();
    for w in WORDS.iter().filter(|w| exists(w.leaf, w.sub)) {
        let r = __cpuid_count(w.leaf, w.sub);
        let bits = [r.eax, r.ebx, r.ecx, r.edx][w.reg];
        out.extend(
            w.names
                .split_whitespace()
                .enumerate()
                .filter(|(i, n)| bits >> i & 1 == 1 && *n != "-")
                .map(|x| x.1),
        );
    }
    out.extend(["constant_tsc", "rep_good", "nopl", "nonstop_tsc", "cpuid"]);
    out.join(" ")
}
