//! eBPF programs about devices: what the verifier accepts ends, and returns 0 or 1 for every use of a device.

use super::{Bytes, kind, outcome};
use ebpf::{Instruction, Kind, Program, Use};

pub(super) fn run(input: &[u8]) -> u64 {
    let mut bytes = Bytes(input);
    let probe = Use { access_type: bytes.word(), major: bytes.word(), minor: bytes.word() };
    let code: Vec<Instruction> = bytes
        .0
        .chunks_exact(8)
        .map(|i| {
            let mut i = Bytes(i);
            Instruction {
                code: i.byte(),
                registers: i.byte(),
                offset: i16::from_le_bytes([i.byte(), i.byte()]),
                immediate: i.word() as i32,
            }
        })
        .collect();
    let operations: u64 = code.iter().fold(0, |set, i| set | 1 << (i.code >> 2));
    let program = match Program::new(Kind::CgroupDevice, code) {
        Ok(program) => program,
        Err(refused) => return outcome((kind(&refused.reason), operations.count_ones())),
    };
    let all = Use { access_type: u32::MAX, major: u32::MAX, minor: u32::MAX };
    let none = Use { access_type: 0, major: 0, minor: 0 };
    let results = [probe, all, none].map(|of| program.run(&of));
    assert!(results.iter().all(|result| *result <= 1), "{results:?} from {program:?}");
    outcome((results, operations, program.code().len() / 8))
}
