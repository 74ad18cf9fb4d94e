//! Shapes of call sites, the jumps and trampolines made of them, and what readers see.

use super::*;

fn around(before: &[u8], after: &[u8]) -> [u8; 2 * AROUND] {
    let mut b = [0xf4; 2 * AROUND];
    b[AROUND - 2..AROUND].copy_from_slice(&[0x0f, 0x05]);
    b[AROUND - 2 - before.len()..AROUND - 2].copy_from_slice(before);
    b[AROUND..AROUND + after.len()].copy_from_slice(after);
    b
}

#[test]
fn shapes() {
    let s = |before: &[u8], after: &[u8]| {
        shape(&around(before, after)).map(|s| (s.before, s.head.len(), s.tail.len()))
    };
    assert_eq!(s(&[0xb8, 39, 0, 0, 0], &[]), Some((7, 5, 0)));
    assert_eq!(s(&[0x48, 0xc7, 0xc0, 15, 0, 0, 0], &[]), Some((9, 7, 0)));
    assert_eq!(s(&[0x4c, 0x8b, 0x4c, 0x24, 8], &[]), Some((7, 5, 0)));
    // mov $0,%r8d is another instruction.
    assert_eq!(s(&[0x41, 0xb8, 0, 0, 0, 0], &[]), None);
    assert_eq!(s(&[0x31, 0xc0], &[0x48, 0x3d, 0, 0xf0, 0xff, 0xff]), Some((2, 0, 6)));
    assert_eq!(s(&[], &[0x48, 0x89, 0xc3]), Some((2, 0, 3)));
    assert_eq!(s(&[], &[0x85, 0xc0, 0x78, 5]), None);
    assert_eq!(s(&[], &[0x89, 0xc2, 0x5d, 0xc3]), Some((2, 0, 3)));
    assert!(!shape(&around(&[], &[0x48, 0x89, 0xc3])).unwrap().returns);
    assert!(shape(&around(&[], &[0xc3, 0xcc, 0xcc])).unwrap().returns);
    assert_eq!(s(&[], &[0xc3, 0xcc, 0xcc]), Some((2, 0, 1)));
    assert_eq!(s(&[], &[0xc3, 0x90, 0x90]), Some((2, 0, 1)));
    assert_eq!(s(&[], &[0xc3, 0x66, 0x0f, 0x1f, 0x44]), Some((2, 0, 1)));
    assert_eq!(s(&[], &[0xc3, 0x53, 0x48]), None);
    // lea 0(%rip),%rax must stay where it is.
    assert_eq!(s(&[], &[0x48, 0x8d, 0x05, 0, 0, 0, 0]), None);
    assert_eq!(s(&[], &[0x48, 0x89, 0x44, 0x24, 8]), Some((2, 0, 5)));
}

#[test]
fn what_only_looks_like_a_head() {
    let h = |front: &[u8], n: u8| {
        shape(&around(&[front, &[0xb8, n, 0, 0, 0]].concat(), &[0x0f, 0x0b, 0x90])).is_some()
    };
    // movl $1,-0x48(%rsp); movl $1,-0x48(%rbp); cmpl $1,-0x48(%rsp)
    assert!(!h(&[0xc7, 0x44, 0x24], 1) && !h(&[0xc7, 0x45], 1) && !h(&[0x81, 0x7c, 0x24], 1));
    // cmpl $0x50f,0x90(%rax); cmpb $15,0x90(%rax), and an addition; lea 0x90(%rax),%edi; mov 0x90(%rax,%rdi,4),%edi
    assert!(!h(&[0x81], 0x90) && !h(&[0x80], 0x90) && !h(&[0x8d], 0x90) && !h(&[0x8b, 0xbc], 0x90));
    // movabs $0x27b8000000,%rdi
    assert!(!h(&[0x48, 0xbf, 0, 0, 0], 0x27));
    // After other instructions: endbr64; xor %edi,%edi; mov %rdi,%rax; xor $0x81,%sil; a jump; nop
    let others: [&[u8]; 6] = [
        &[0xf3, 0x0f, 0x1e, 0xfa],
        &[0x31, 0xff],
        &[0x89, 0xc0],
        &[0x40, 0x80, 0xf6, 0x81],
        &[0x74, 0x2b],
        &[0x90],
    ];
    assert!(others.iter().all(|o| h(o, 39)));
}

struct Memory(u64, [u8; 2 * AROUND]);
impl AddressSpace for Memory {
    fn read(&self, addr: u64, buf: &mut [u8]) -> usize {
        assert_eq!(addr, self.0);
        buf.copy_from_slice(&self.1);
        buf.len()
    }
    fn write(&self, _: u64, _: &[u8]) -> usize {
        0
    }
    fn kill(&self) {}
    fn host_pid(&self) -> i32 {
        0
    }
}

#[test]
fn tails_trap_in_the_middle() {
    let sites = Sites::default();
    sites.add_area(0x3f_0000);
    for i in 0..2000u64 {
        let rip = 0x40_1010 + i * 0x1234;
        let m = Memory(rip - 16, around(&[0x31, 0xc0], &[0x48, 0x3d, 0, 0xf0, 0xff, 0xff]));
        match sites.plan(&m, rip, false) {
            Ok(p) => {
                assert_eq!(p.site, rip - 2);
                assert!(INVALID.contains(&p.jump[2]));
                assert_eq!(p.trampoline % TRAMP_SIZE, 0);
                let t = p.trampoline;
                assert_eq!(sites.guest_rip(t), rip - 2);
                assert_eq!(sites.guest_rip(t + 7), rip - 2);
                assert_eq!(sites.guest_rip(t + TRAMP_BACK), rip);
                assert_eq!(sites.guest_rip(t + TRAMP_BACK + 6), rip + 6);
                assert!(sites.knows(rip));
                if let Some((at, old, new)) = p.swap {
                    assert!(at / 64 == (at + 7) / 64 && at <= p.site && p.site + 5 <= at + 8);
                    assert_ne!(old, new);
                }
            }
            Err(e) => assert_eq!(e, Rewrite::Refused),
        }
    }
    assert_eq!(sites.guest_rip(0x40_0000), 0x40_0000);
}

/// The tails of one to three instructions, and where these begin.
const TAILS: [(&[u8], &[usize]); 12] = [
    // pop %rbx; ret and its filler: calls of the C library that can be cancelled
    (&[0x5b, 0xc3, 0x0f, 0x1f, 0x44, 0, 0], &[0, 1]),
    // pop %r12; ret
    (&[0x41, 0x5c, 0xc3, 0x66, 0x0f, 0x1f, 0x44], &[0, 2]),
    // leave; ret
    (&[0xc9, 0xc3, 0x90], &[0, 1]),
    // pop %rbx; pop %rbp; ret
    (&[0x5b, 0x5d, 0xc3], &[0, 1, 2]),
    // pop %rbx; pop %rbp; pop %r12
    (&[0x5b, 0x5d, 0x41, 0x5c], &[0, 1, 2]),
    // mov %eax,%edx; pop %rbp
    (&[0x89, 0xc2, 0x5d], &[0, 2]),
    // pop %rbx; cmp $-4095,%rax
    (&[0x5b, 0x48, 0x3d, 1, 0xf0, 0xff, 0xff], &[0, 1]),
    // add $8,%rsp
    (&[0x48, 0x83, 0xc4, 8, 0xc3], &[0]),
    // test %eax,%eax; mov %rax,%rbx
    (&[0x85, 0xc0, 0x48, 0x89, 0xc3], &[0, 2]),
    // mov %rax,%rbx
    (&[0x48, 0x89, 0xc3], &[0]),
    // ret
    (&[0xc3, 0x90, 0x90], &[0]),
    // push %rax; push %rbx; mov 8(%rsp),%rdi
    (&[0x50, 0x53, 0x48, 0x8b, 0x7c, 0x24, 8], &[0, 1, 2]),
];

#[test]
fn each_displaced_instruction_traps() {
    for (tail, begins) in TAILS {
        let found = shape(&around(&[0x31, 0xc0], tail)).unwrap();
        let traps: Vec<usize> = (0..3).filter(|i| found.traps.0[*i]).collect();
        assert_eq!(traps, begins, "{tail:x?}");
        let mut planned = 0;
        for i in 0..200 {
            let rip = 0x7f12_3456_1010 + i * 0x1_2340;
            let sites = Sites::default();
            let m = Memory(rip - 16, around(&[0x31, 0xc0], tail));
            let Err(Rewrite::NeedsArea(places)) = sites.plan(&m, rip, true) else {
                panic!("no area is known")
            };
            assert_eq!(places.is_empty(), *begins == [0]);
            // Each place that is named does.
            let start = if places.is_empty() { rip & !0xfff } else { places[i as usize % places.len()] };
            sites.add_area(start);
            let Ok(p) = sites.plan(&m, rip, true) else {
                assert!(((rip - 2) ^ (rip + 2)) >= abi::PAGE_SIZE, "{tail:x?} at {start:#x}");
                continue;
            };
            planned += 1;
            assert_eq!(p.site, rip - 2);
            for begin in begins {
                assert!(INVALID.contains(&p.jump[2 + begin]));
                assert_eq!(sites.guest_rip(p.trampoline + TRAMP_BACK + *begin as u64), rip + *begin as u64);
            }
        }
        assert!(planned > 150);
    }
}

#[test]
fn readers_see_what_was_there() {
    let sites = Sites::default();
    sites.add_area(0x7000_1000_0000);
    let rip = 0x7000_0000_1010;
    let m = Memory(rip - 16, around(&[0xb8, 39, 0, 0, 0], &[]));
    let p = sites.plan(&m, rip, false).unwrap();
    let mut changed = m.1.to_vec();
    changed[9..14].copy_from_slice(&p.jump);
    for from in 0..32 {
        for end in from..32 {
            let mut read = changed[from..end].to_vec();
            sites.show_own(rip - 16 + from as u64, &mut read);
            assert_eq!(read, m.1[from..end]);
        }
    }
    sites.show_own(u64::MAX - 3, &mut [0; 8]);
}

#[test]
fn places_are_near_and_below_first() {
    let traps = Traps([true, true, false]);
    let site = 0x7f12_3456_1234;
    let places = traps.places(site);
    assert!(places.len() <= MAX_PLACES && places.iter().all(|p| p.is_multiple_of(abi::PAGE_SIZE)));
    assert!(
        places.iter().all(|p| distance(site, *p).is_some() && distance(site, p + REWRITE_AREA).is_some())
    );
    let below: Vec<u64> = places.iter().copied().take_while(|p| *p <= site).collect();
    assert!(below.len() == MAX_PLACES / 2 && below.is_sorted_by(|a, b| a > b));
    assert!(site - below[0] < 4 << 20);
    // A program at the usual address has room below.
    assert!(traps.places(0x40_1234).iter().any(|p| (0x1_0000..0x3f_0000).contains(p)));
    // None is below zero or wraps.
    assert!(traps.places(0).iter().all(|p| *p < 1 << 32));
    assert!(traps.places(u64::MAX - 8).iter().all(|p| *p > u64::MAX - (1 << 32)));
}

#[test]
fn any_address_may_be_named() {
    for rip in [0, 1, 15, 16, 17, u64::MAX - 16, u64::MAX] {
        let sites = Sites::default();
        sites.add_area(0x3f_0000);
        let m = Memory(rip.wrapping_sub(16), around(&[0xb8, 39, 0, 0, 0], &[]));
        assert_eq!(sites.plan(&m, rip, false).is_ok(), rip == 16 || rip == 17, "{rip:#x}");
    }
}

#[test]
fn forgotten_areas_are_full() {
    let sites = Sites::default();
    sites.add_area(0x3f_0000);
    sites.forget_areas();
    let rip = 0x40_1010;
    let m = Memory(rip - 16, around(&[0xb8, 39, 0, 0, 0], &[]));
    assert_eq!(sites.plan(&m, rip, false).err(), Some(Rewrite::Refused));
}

#[test]
fn far_sites_need_an_area() {
    let sites = Sites::default();
    let rip = 0x7000_0000_1010;
    let m = Memory(rip - 16, around(&[0xb8, 39, 0, 0, 0], &[]));
    assert_eq!(sites.plan(&m, rip, false).err(), Some(Rewrite::NeedsArea(Vec::new())));
    sites.add_area(0x40_0000);
    assert_eq!(sites.plan(&m, rip, false).err(), Some(Rewrite::NeedsArea(Vec::new())));
    sites.add_area(0x7000_1000_0000);
    let p = sites.plan(&m, rip, false).expect("in reach");
    assert_eq!(p.code.len() as u64, TRAMP_SIZE);
    assert_eq!(p.site, rip - 7);
    assert_eq!(sites.guest_rip(p.trampoline), rip - 7);
    assert_eq!(sites.guest_rip(p.trampoline + 5), rip - 2);
    // A head's fallback is its own `syscall`; both count from the trampoline.
    let word = |at: u64| u64::from_le_bytes(p.code[at as usize..][..8].try_into().unwrap());
    assert_eq!(p.trampoline.wrapping_add(word(TRAMP_RIP)), rip);
    assert_eq!(p.trampoline.wrapping_add(word(TRAMP_FALLBACK)), rip - 2);
    assert_eq!(word(TRAMP_ENTRY), STUB_FAST);
    // The lea names the trampoline itself.
    assert_eq!(&p.code[5..8], &[0x4c, 0x8d, 0x1d]);
    assert_eq!(i32::from_le_bytes(p.code[8..12].try_into().unwrap()), -12);
}
