use super::*;
use abi::Errno;
use std::sync::Arc;

fn i(code: u16, jt: u8, jf: u8, k: u32) -> SockFilter {
    SockFilter { code, jt, jf, k }
}
fn ld(k: u32) -> SockFilter {
    i(0x20, 0, 0, k)
}
fn ret(k: u32) -> SockFilter {
    i(0x06, 0, 0, k)
}
fn refused(code: &[SockFilter]) {
    assert_eq!(Program::new(code), Err(Errno::EINVAL), "{code:?}");
}
fn run(code: &[SockFilter], data: &Data) -> u32 {
    Program::new(code).expect("valid").run(data)
}

/// Denies one call, allows the others.
fn deny(nr: u32, value: u32) -> Program {
    Program::new(&[ld(0), i(0x15, 0, 1, nr), ret(value), ret(RET_ALLOW)]).expect("valid")
}

#[test]
fn words_of_the_data() {
    let d = Data { nr: -2, arch: ARCH, ip: 0x1122_3344_5566_7788, args: [1 << 40 | 7, 2, 3, 4, 5, 6 << 32] };
    let word = |k| run(&[ld(k), i(0x16, 0, 0, 0)], &d);
    assert_eq!(word(0), -2i32 as u32);
    assert_eq!(word(4), ARCH);
    assert_eq!((word(8), word(12)), (0x5566_7788, 0x1122_3344));
    assert_eq!((word(16), word(20)), (7, 256));
    assert_eq!((word(56), word(60)), (0, 6));
    assert_eq!(run(&[i(0x80, 0, 0, 0), i(0x16, 0, 0, 0)], &d), 64);
}

#[test]
fn what_is_refused() {
    refused(&[]);
    refused(&vec![ret(0); 4097]);
    refused(&[ld(0)]);
    refused(&[ld(64), ret(0)]);
    refused(&[ld(2), ret(0)]);
    refused(&[i(0x28, 0, 0, 0), ret(0)]); // half word
    refused(&[i(0x30, 0, 0, 0), ret(0)]); // byte
    refused(&[i(0x40, 0, 0, 0), ret(0)]); // BPF_IND
    refused(&[i(0x94, 0, 0, 3), ret(0)]); // BPF_MOD
    refused(&[i(0x34, 0, 0, 0), ret(0)]); // division by the constant 0
    refused(&[i(0x64, 0, 0, 32), ret(0)]);
    refused(&[i(0x8c, 0, 0, 0), ret(0)]);
    refused(&[i(0x05, 0, 0, 1), ret(0)]);
    refused(&[i(0x05, 0, 0, u32::MAX), ret(0)]);
    refused(&[i(0x15, 1, 0, 0), ret(0)]);
    refused(&[i(0x15, 0, 1, 0), ret(0)]);
    refused(&[i(0x02, 0, 0, 16), ret(0)]);
    refused(&[i(0xffff, 0, 0, 0), ret(0)]);
    refused(&[i(0x0106, 0, 0, 0)]);
    // A word of memory that is set on one way only.
    refused(&[ld(0), i(0x15, 0, 1, 1), i(0x02, 0, 0, 3), i(0x60, 0, 0, 3), ret(0)]);
    refused(&[i(0x60, 0, 0, 0), ret(0)]);
    assert!(Program::new(&[ld(0), i(0x02, 0, 0, 3), i(0x15, 0, 0, 1), i(0x60, 0, 0, 3), ret(0)]).is_ok());
    assert!(Program::new(&vec![ret(0); 4096]).is_ok());
}

#[test]
fn arithmetic() {
    let d = Data { nr: 100, ..Data::default() };
    let one = |code, k| run(&[ld(0), i(code, 0, 0, k), i(0x16, 0, 0, 0)], &d);
    assert_eq!(one(0x04, 1), 101);
    assert_eq!(one(0x14, 101), u32::MAX);
    assert_eq!(one(0x24, 3), 300);
    assert_eq!(one(0x34, 7), 14);
    assert_eq!(one(0x44, 3), 103);
    assert_eq!(one(0x54, 6), 4);
    assert_eq!(one(0xa4, 1), 101);
    assert_eq!(one(0x64, 2), 400);
    assert_eq!(one(0x74, 2), 25);
    assert_eq!(one(0x84, 0), 100u32.wrapping_neg());
    let by_x = |code, x| run(&[ld(0), i(0x01, 0, 0, x), i(code, 0, 0, 0), i(0x16, 0, 0, 0)], &d);
    assert_eq!(by_x(0x0c, 5), 105);
    assert_eq!(by_x(0x3c, 0), 0);
    assert_eq!(by_x(0x6c, 33), 200);
    // TAX, TXA, memory
    let code =
        [ld(0), i(0x07, 0, 0, 0), i(0x03, 0, 0, 15), i(0, 0, 0, 9), i(0x61, 0, 0, 15), i(0x87, 0, 0, 0)];
    assert_eq!(run(&[&code[..], &[i(0x16, 0, 0, 0)]].concat(), &d), 100);
}

#[test]
fn jumps() {
    let d = Data { nr: 5, ..Data::default() };
    let holds = |code, k| run(&[ld(0), i(code, 0, 1, k), ret(1), ret(2)], &d) == 1;
    assert!(holds(0x15, 5) && !holds(0x15, 6));
    assert!(holds(0x25, 4) && !holds(0x25, 5));
    assert!(holds(0x35, 5) && !holds(0x35, 6));
    assert!(holds(0x45, 4) && !holds(0x45, 2));
    assert_eq!(run(&[i(0x05, 0, 0, 1), ret(1), ret(2)], &d), 2);
}

#[test]
fn the_strictest_and_latest_wins() {
    let filters = Arc::<Filters>::default();
    let call = |nr| Data { nr, arch: ARCH, ..Data::default() };
    let a = Chain::new(&filters, deny(39, RET_ERRNO | 1), None, false).expect("fits");
    let b = Chain::new(&filters, deny(39, RET_ERRNO | 2), Some(a.clone()), true).expect("fits");
    assert_eq!(b.run(&call(39)), Verdict { value: RET_ERRNO | 2, log: true });
    assert_eq!(b.run(&call(40)).value, RET_ALLOW);
    let c = Chain::new(&filters, deny(39, RET_TRACE), Some(b.clone()), false).expect("fits");
    assert_eq!(c.run(&call(39)).value, RET_ERRNO | 2);
    let d = Chain::new(&filters, deny(39, RET_KILL_PROCESS), Some(c.clone()), false).expect("fits");
    assert_eq!(Action::of(d.run(&call(39)).value), Action::KillProcess);
    assert_eq!(d.count(), 4);
    assert!(d.contains(&a) && !a.contains(&d));
    assert!(
        d.always_allows(40) && !d.always_allows(39) && !d.always_allows(1 << 40) && !d.always_allows(512)
    );
}

#[test]
fn always_allowed_needs_no_argument() {
    // Allows 1 only for standard output; allows 2 outright on this architecture.
    let p = [
        ld(4),
        i(0x15, 1, 0, ARCH),
        ret(0),
        ld(0),
        i(0x15, 0, 3, 1),
        ld(16),
        i(0x15, 0, 1, 1),
        ret(RET_ALLOW),
    ];
    let p = [&p[..], &[i(0x15, 0, 1, 2), ret(RET_ALLOW), ret(RET_ERRNO)]].concat();
    let p = Program::new(&p).expect("valid");
    assert!(!p.always_allows(1) && p.always_allows(2) && !p.always_allows(3));
}

#[test]
fn chains_are_bounded() {
    let filters = Arc::<Filters>::default();
    let long = Program::new(&vec![ret(RET_ALLOW); 4096]).expect("valid");
    let mut chain = None;
    let mut n = 0;
    let full = loop {
        match Chain::new(&filters, long.clone(), chain.clone(), false) {
            Ok(c) => chain = Some(c),
            Err(e) => break e,
        }
        n += 1;
    };
    assert_eq!((full, n), (Errno::ENOMEM, 3));
    let mut chain: Option<Arc<Chain>> = None;
    let short = Program::new(&[ret(RET_ALLOW)]).expect("valid");
    while let Ok(c) = Chain::new(&filters, short.clone(), chain.clone(), false) {
        chain = Some(c);
    }
    assert!(chain.is_some_and(|c| c.count() > 3000));
}

/// A small generator of numbers; the tests must give the same result each time.
struct Random(u64);
impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Whatever is accepted ends, and what is said to be always allowed is allowed for every argument.
#[test]
fn random_programs() {
    let mut r = Random(0x9e37_79b9_7f4a_7c15);
    let codes = [
        0x20, 0x80, 0x81, 0, 1, 0x60, 0x61, 2, 3, 6, 0x16, 7, 0x87, 5, 0x15, 0x25, 0x35, 0x45, 0x1d, 0x2d,
        0x3d, 0x4d, 0x04, 0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74,
        0x7c, 0x84, 0xa4, 0xac,
    ];
    let (mut accepted, mut constant) = (0, 0);
    for _ in 0..200_000 {
        let n = 1 + r.next() as usize % 12;
        let mut code: Vec<SockFilter> = (0..n)
            .map(|_| {
                let code = match r.next() % 20 {
                    0 => r.next() as u16,
                    _ => codes[r.next() as usize % codes.len()],
                };
                let k = match r.next() % 4 {
                    0 => r.next() as u32,
                    1 => RET_ALLOW,
                    2 => r.next() as u32 % 8,
                    _ => (r.next() as u32 % 16) * 4,
                };
                i(code, (r.next() % 4) as u8, (r.next() % 4) as u8, k)
            })
            .collect();
        code.push(ret(if r.next().is_multiple_of(2) { RET_ALLOW } else { RET_ERRNO }));
        let Ok(p) = Program::new(&code) else { continue };
        accepted += 1;
        let nr = r.next() as i32 % 8;
        let always = p.always_allows(nr);
        constant += u32::from(always);
        for _ in 0..4 {
            let args = std::array::from_fn(|_| r.next() >> (r.next() % 64));
            let v = p.run(&Data { nr, arch: ARCH, ip: r.next(), args });
            assert!(!always || v & ACTION_FULL == RET_ALLOW, "{code:?}");
        }
    }
    assert!(accepted > 10_000 && constant > 1_000, "{accepted} {constant}");
}

#[test]
fn the_filters_of_a_kernel_have_a_bound_of_their_own() {
    let long = Program::new(&vec![ret(RET_ALLOW); MAX_INSTRUCTIONS]).expect("valid");
    let (filters, others) = (Arc::<Filters>::default(), Arc::<Filters>::default());
    let one = |filters: &Arc<Filters>| Chain::new(filters, long.clone(), None, false);
    let mut all = Vec::new();
    while let Ok(chain) = one(&filters) {
        all.push(chain);
    }
    assert!(one(&others).is_ok());
    all.pop();
    assert!(one(&filters).is_ok());
}
