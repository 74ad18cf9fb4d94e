use super::*;

const EXIT: Instruction = Instruction { code: 0x95, registers: 0, offset: 0, immediate: 0 };

fn op(code: u8, dst: u8, src: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: src << 4 | dst, offset, immediate }
}

fn mov(register: u8, value: i32) -> Instruction {
    op(0xb7, register, 0, 0, value)
}

fn run(code: &[Instruction], of: Use) -> u64 {
    Program::new(Kind::CgroupDevice, code.to_vec()).expect("valid").run(&of)
}

const USE: Use = Use { access_type: 2 | 6 << 16, major: 1, minor: 3 };

/// What an operation leaves in register 0, found out by comparing with every bit.
fn value(before: &[Instruction], of: Use) -> u64 {
    (0..64).fold(0, |value, bit| {
        let mut code = before.to_vec();
        // r0 = r0 >> bit & 1
        code.extend([op(0x77, 0, 0, 0, bit), op(0x57, 0, 0, 0, 1), EXIT]);
        value | run(&code, of) << bit
    })
}

/// The rules of runc: type, access, major and minor number, each in a block of its own.
fn rule(kind: i32, access: i32, major: i32, minor: i32, allow: i32) -> Vec<Instruction> {
    vec![
        op(0x55, 2, 0, 7, kind),
        op(0xbc, 1, 3, 0, 0),
        op(0x54, 1, 0, 0, access),
        op(0x5d, 1, 3, 4, 0),
        op(0x55, 4, 0, 3, major),
        op(0x55, 5, 0, 2, minor),
        op(0xb4, 0, 0, 0, allow),
        EXIT,
    ]
}

#[test]
fn rules_as_engines_write_them() {
    let mut code = vec![
        op(0x61, 2, 1, 0, 0),
        op(0x54, 2, 0, 0, 0xffff),
        op(0x61, 3, 1, 0, 0),
        op(0x74, 3, 0, 0, 16),
        op(0x61, 4, 1, 4, 0),
        op(0x61, 5, 1, 8, 0),
    ];
    code.extend(rule(2, 6, 1, 3, 1));
    code.extend(rule(2, 2, 1, 5, 1));
    code.extend([op(0xb4, 0, 0, 0, 0), EXIT]);
    let allowed = |kind: u32, access: u32, major, minor| {
        run(&code, Use { access_type: access << 16 | kind, major, minor }) == 1
    };
    assert!(allowed(2, 6, 1, 3) && allowed(2, 2, 1, 3) && allowed(2, 2, 1, 5));
    assert!(!allowed(2, 1, 1, 3) && !allowed(2, 4, 1, 5) && !allowed(1, 2, 1, 3) && !allowed(2, 2, 1, 4));
}

#[test]
fn loads_parts_of_the_first_word() {
    let one =
        |code, at| value(&[op(code, 0, 1, at, 0)], Use { access_type: 0x0403_0201, major: 9, minor: 8 });
    assert_eq!([0, 1, 2, 3].map(|at| one(0x71, at)), [1, 2, 3, 4]);
    assert_eq!([0, 2].map(|at| one(0x69, at)), [0x201, 0x403]);
    assert_eq!([0, 4, 8].map(|at| one(0x61, at)), [0x0403_0201, 9, 8]);
}

#[test]
fn calculates() {
    // The second operand comes from the context, so that the verifier knows no value: major is 1, minor 3.
    let by = |code, first: i32| value(&[mov(0, first), op(0x61, 2, 1, 8, 0), op(code, 0, 2, 0, 0)], USE);
    let minus = |n: i64| (-n) as u64;
    assert_eq!(by(0x0f, 7), 10);
    assert_eq!(by(0x1f, 1), minus(2));
    assert_eq!(by(0x1c, 1), u64::from(u32::MAX - 1));
    assert_eq!(by(0x2f, -2), minus(6));
    assert_eq!(by(0x3f, 7), 2);
    assert_eq!(by(0x9f, 8), 2);
    assert_eq!(by(0x6f, 1), 8);
    assert_eq!(by(0x7c, -1), u64::from(u32::MAX >> 3));
    assert_eq!(by(0xcf, -16), minus(2));
    assert_eq!(by(0xcc, -16), u64::from(-2i32 as u32));
    assert_eq!(by(0xaf, 1), 2);
    let nothing = Use { minor: 0, ..USE };
    let by_0 = |code| value(&[mov(0, -9), op(0x61, 2, 1, 8, 0), op(code, 0, 2, 0, 0)], nothing);
    assert_eq!([by_0(0x3f), by_0(0x9f)], [0, minus(9)]);
    assert_eq!([by_0(0x3c), by_0(0x9c)], [0, u64::from(-9i32 as u32)]);
    let wide = [op(0x18, 0, 0, 0, 5), op(0, 0, 0, 0, -1)];
    assert_eq!(value(&wide, USE), 0xffff_ffff_0000_0005);
    assert_eq!(value(&[mov(0, 5), op(0x87, 0, 0, 0, 0)], USE), minus(5));
}

#[test]
fn compares() {
    let holds = |code, a, b| run(&[mov(2, a), mov(0, 1), op(code, 2, 0, 1, b), mov(0, 0), EXIT], USE) == 1;
    assert!(holds(0x15, 3, 3) && !holds(0x15, 3, 4) && holds(0x55, 3, 4));
    assert!(holds(0x25, -1, 1) && !holds(0x65, -1, 1) && holds(0xc5, -1, 1) && holds(0xd5, 1, 1));
    assert!(holds(0xa5, 1, -1) && holds(0xb5, 1, 1) && holds(0x35, 1, 1) && holds(0x75, 1, -1));
    assert!(holds(0x45, 6, 2) && !holds(0x45, 6, 1) && holds(0x16, 3, 3) && holds(0xc6, -1, 1));
}

#[test]
fn nonsense_is_refused_with_a_reason() {
    let refused = |code: &[Instruction], errno, reason: &str| {
        let error = Program::new(Kind::CgroupDevice, code.to_vec()).expect_err(reason);
        assert_eq!((error.errno, &error.reason[..]), (errno, reason));
        assert!(error.log().contains(reason) && error.log().ends_with("(limit 4096)\n"));
    };
    let (invalid, denied) = (Errno::EINVAL, Errno::EACCES);
    let with = |i| [mov(0, 1), i, EXIT];
    refused(&[EXIT], denied, "R0 !read_ok");
    refused(&[op(0xbf, 0, 5, 0, 0), EXIT], denied, "R5 !read_ok");
    refused(&[mov(0, 1)], invalid, "last insn is not an exit or jmp");
    refused(&[mov(0, 1), op(0x05, 0, 0, 9, 0), EXIT], invalid, "jump out of range from insn 1 to 11");
    refused(&[mov(0, 1), op(0x05, 0, 0, -9, 0), EXIT], invalid, "jump out of range from insn 1 to -7");
    refused(&[mov(0, 1), EXIT, mov(0, 1), EXIT], invalid, "unreachable insn 2");
    refused(&with(op(0x15, 0, 0, -2, 0)), invalid, "back-edge from insn 1 to 0");
    refused(&with(op(0xff, 0, 0, 0, 0)), invalid, "unknown opcode ff");
    refused(&with(op(0x85, 0, 0, 0, 5)), invalid, "calls are not supported");
    refused(&with(op(0x37, 0, 0, 0, 0)), invalid, "div by zero");
    refused(&with(op(0x67, 0, 0, 0, 64)), invalid, "invalid shift 64");
    refused(&with(op(0x64, 0, 0, 0, 32)), invalid, "invalid shift 32");
    refused(&with(mov(10, 1)), denied, "frame pointer is read only");
    refused(&with(mov(11, 1)), invalid, "R11 is invalid");
    refused(&with(op(0x0f, 1, 1, 0, 0)), denied, "R1 pointer arithmetic prohibited");
    refused(&with(op(0x15, 1, 0, 0, 0)), denied, "R1 pointer comparison prohibited");
    refused(&with(op(0xbc, 2, 1, 0, 0)), denied, "R1 partial copy of pointer");
    refused(&with(op(0x61, 2, 10, -4, 0)), denied, "the stack is not supported");
    refused(&with(op(0x62, 1, 0, 0, 0)), denied, "invalid bpf_context access off=0 size=4");
    refused(&with(op(0x61, 2, 1, 12, 0)), denied, "invalid bpf_context access off=12 size=4");
    refused(&with(op(0x61, 2, 1, -4, 0)), denied, "invalid bpf_context access off=-4 size=4");
    refused(&with(op(0x61, 2, 1, 2, 0)), denied, "invalid bpf_context access off=2 size=4");
    refused(&with(op(0x69, 2, 1, 4, 0)), denied, "invalid bpf_context access off=4 size=2");
    refused(&with(op(0x79, 2, 1, 0, 0)), denied, "invalid bpf_context access off=0 size=8");
    refused(&with(op(0x61, 2, 0, 0, 0)), denied, "R0 invalid mem access 'scalar'");
    let result = "At program exit the register R0";
    refused(&[mov(0, 2), EXIT], invalid, &format!("{result} has smin=2 smax=2 should have been in [0, 1]"));
    refused(&[op(0xbf, 0, 1, 0, 0), EXIT], invalid, &format!("{result} is not a known value (ctx)"));
    refused(&[op(0x18, 0, 0, 0, 1), EXIT], invalid, "invalid bpf_ld_imm64 insn");
    refused(&[op(0x18, 0, 1, 0, 1), op(0, 0, 0, 0, 0), EXIT], invalid, "maps are not supported");
    let into = [mov(0, 1), op(0x15, 0, 0, 1, 0), op(0x18, 2, 0, 0, 1), op(0, 0, 0, 0, 0), EXIT];
    refused(&into, invalid, "jump into the middle of ldimm64 insn 3");
    refused(&vec![EXIT; MAX_INSTRUCTIONS + 1], invalid, "4097 instructions, of at most 4096");
    // Set on one of two ways only.
    let one_way = [op(0x61, 2, 1, 4, 0), op(0x15, 2, 0, 1, 0), mov(0, 1), EXIT];
    refused(&one_way, denied, "R0 !read_ok");
}

#[test]
fn programs_about_packets_see_none() {
    let of = |code: &[Instruction]| Program::new(Kind::CgroupSkb, code.to_vec());
    assert_eq!(of(&[mov(0, 1), EXIT]).expect("valid").kind(), Kind::CgroupSkb);
    let load = of(&[op(0x61, 0, 1, 0, 0), EXIT]).expect_err("no context");
    assert_eq!((load.errno, &load.reason[..]), (Errno::EACCES, "invalid bpf_context access off=0 size=4"));
}

#[test]
fn a_tag_is_that_of_the_instructions() {
    let program = Program::new(Kind::CgroupDevice, vec![mov(0, 1), EXIT]).expect("valid");
    // As Linux 6.18 shows it.
    assert_eq!(program.tag(), [0xb1, 0x14, 0x59, 0xa0, 0xe1, 0x1c, 0xa1, 0x4c]);
}
