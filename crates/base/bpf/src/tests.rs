use super::*;
use abi::Errno;

/// Bytes as a packet has them; what lies behind `known` is not known.
struct Bytes<'a> {
    bytes: &'a [u8],
    known: usize,
}

impl Input for Bytes<'_> {
    fn load(&self, at: u32, size: usize) -> std::result::Result<Option<u32>, Outside> {
        let at = at as usize;
        let bytes = self.bytes.get(at..at + size).ok_or(Outside)?;
        let value = bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte));
        Ok((at + size <= self.known).then_some(value))
    }

    fn length(&self) -> u32 {
        self.bytes.len() as u32
    }
}

fn op(code: u16, jt: u8, jf: u8, k: u32) -> SockFilter {
    SockFilter { code, jt, jf, k }
}

fn program(code: &[SockFilter]) -> Result<Program> {
    Program::new(code, |_| true)
}

fn run(code: &[SockFilter], bytes: &[u8]) -> Option<u32> {
    program(code).expect("valid").run(&Bytes { bytes, known: bytes.len() })
}

const RET: SockFilter = SockFilter { code: code::RET_K, jt: 0, jf: 0, k: 1 };
const RET_ACCUMULATOR: SockFilter = SockFilter { code: code::RET_A, jt: 0, jf: 0, k: 0 };

#[test]
fn loads_of_every_size() {
    let bytes = [0x45, 1, 2, 3, 4, 5];
    let one = |code, k| run(&[op(code::LDX_IMM, 0, 0, 1), op(code, 0, 0, k), RET_ACCUMULATOR], &bytes);
    assert_eq!(one(code::LD_W_ABS, 1), Some(0x0102_0304));
    assert_eq!(one(code::LD_H_ABS, 1), Some(0x0102));
    assert_eq!(one(code::LD_B_ABS, 0), Some(0x45));
    assert_eq!(one(code::LD_W_IND, 1), Some(0x0203_0405));
    assert_eq!(one(code::LD_H_IND, 0), Some(0x0102));
    assert_eq!(one(code::LD_B_IND, 4), Some(5));
    assert_eq!(one(code::LD_W_LEN, 0), Some(6));
    let header = [op(code::LDX_B_MSH, 0, 0, 0), op(code::TXA, 0, 0, 0), RET_ACCUMULATOR];
    assert_eq!(run(&header, &bytes), Some(20));
}

#[test]
fn what_reads_outside_or_divides_by_zero_ends_with_0() {
    for bad in [op(code::LD_W_ABS, 0, 0, 1), op(code::LD_B_ABS, 0, 0, 4), op(code::LDX_B_MSH, 0, 0, u32::MAX)]
    {
        assert_eq!(run(&[bad, RET], &[1, 2, 3, 4]), Some(0));
    }
    let far = [op(code::LDX_IMM, 0, 0, 2), op(code::LD_W_IND, 0, 0, u32::MAX), RET];
    assert_eq!(run(&far, &[1, 2, 3, 4]), Some(0));
    for operation in [code::DIV, code::MOD] {
        assert_eq!(run(&[op(code::ALU | operation | code::X, 0, 0, 0), RET], &[]), Some(0));
    }
}

#[test]
fn a_way_that_depends_on_what_is_not_known_has_no_result() {
    let known = |code: &[SockFilter]| program(code).expect("valid").run(&Bytes { bytes: &[7, 8], known: 1 });
    let on =
        |k| [op(code::LD_B_ABS, 0, 0, k), op(code::JMP | code::JEQ, 0, 1, 7), RET, op(code::RET_K, 0, 0, 2)];
    assert_eq!(known(&on(0)), Some(1));
    assert_eq!(known(&on(1)), None);
    assert_eq!(known(&[op(code::LD_B_ABS, 0, 0, 1), RET_ACCUMULATOR]), None);
    assert_eq!(known(&[op(code::LD_B_ABS, 0, 0, 1), RET]), Some(1));
}

#[test]
fn calculates_and_remembers() {
    // a = 7; m[3] = a; x = m[3]; a = a * x; a = a % 10; x = a; a = x
    let code = [
        op(code::LD_IMM, 0, 0, 7),
        op(code::ST, 0, 0, 3),
        op(code::LDX_MEM, 0, 0, 3),
        op(code::ALU | code::MUL | code::X, 0, 0, 0),
        op(code::ALU | code::MOD, 0, 0, 10),
        op(code::TAX, 0, 0, 0),
        op(code::TXA, 0, 0, 0),
        RET_ACCUMULATOR,
    ];
    assert_eq!(run(&code, &[]), Some(9));
}

#[test]
fn nonsense_is_refused() {
    let refused = |code: &[SockFilter]| assert_eq!(program(code), Err(Errno::EINVAL), "{code:?}");
    refused(&[]);
    refused(&vec![RET; MAX_INSTRUCTIONS + 1]);
    refused(&[op(code::LD_IMM, 0, 0, 1)]);
    let bad = [
        op(code::JMP | code::JEQ, 1, 0, 0),
        op(code::JA, 0, 0, 1),
        op(code::JA, 0, 0, u32::MAX),
        op(code::LD_MEM, 0, 0, 16),
        // Nothing has stored that word.
        op(code::LD_MEM, 0, 0, 0),
        op(code::ALU | code::DIV, 0, 0, 0),
        op(code::ALU | code::MOD, 0, 0, 0),
        op(code::ALU | code::LSH, 0, 0, 32),
        op(code::ALU | code::NEG | code::X, 0, 0, 0),
        op(0xff, 0, 0, 0),
        op(0x0e, 0, 0, 0),
        op(0x0106, 0, 0, 0),
    ];
    bad.into_iter().for_each(|one| refused(&[one, RET]));
    assert!(Program::new(&[op(code::LD_B_ABS, 0, 0, 0), RET], |i| i.code != code::LD_B_ABS).is_err());
}

#[test]
fn whatever_is_accepted_ends() {
    let mut random = 12345u64;
    for _ in 0..20_000 {
        let code: Vec<_> = (0..6)
            .map(|_| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let (code, k) = ((random >> 33) as u16 & 0xff, (random >> 47) as u32);
                op(code, (random >> 41) as u8 & 3, (random >> 44) as u8 & 3, k)
            })
            .chain([RET])
            .collect();
        if let Ok(program) = program(&code) {
            program.run(&Bytes { bytes: &[0x45; 40], known: 20 });
        }
    }
}
