//! This process's own executable and vDSO, read where they are mapped: a confined process can open neither.

use crate::clock::auxval;
use crate::process::vm_read;
use elf::{FileHeader, ProgramHeader, entries, program_kind};

/// Longest vDSO, notes and table of headers.
const LONGEST: u64 = 1 << 16;

fn read(addr: u64, len: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len.min(LONGEST)).ok()?];
    let n = vm_read(rustix::process::getpid().as_raw_nonzero().get(), addr, &mut bytes).ok()?;
    (n == bytes.len()).then_some(bytes)
}

/// The vDSO of the host's kernel as it is in memory.
pub fn vdso() -> Option<Vec<u8>> {
    let base = Some(auxval(libc::AT_SYSINFO_EHDR)).filter(|base| *base != 0)?;
    let header = FileHeader::read(&read(base, size_of::<FileHeader>() as u64)?)?;
    let table = read(base.checked_add(header.phoff)?, header.program_table_len()? as u64)?;
    let load = entries::<ProgramHeader>(&table).find(|h| h.kind == program_kind::LOAD)?;
    read(base, load.memsz)
}

/// The executable's build ID in hexadecimal.
pub fn build_id() -> Option<String> {
    const ID: u32 = 3;
    let at = auxval(libc::AT_PHDR);
    let size = size_of::<ProgramHeader>() as u64;
    let table = read(at, auxval(libc::AT_PHNUM).checked_mul(size)?)?;
    let own = entries::<ProgramHeader>(&table).find(|h| h.kind == program_kind::PHDR);
    // Without that header the program is where its file says.
    let bias = own.map_or(0, |h| at.wrapping_sub(h.vaddr));
    for h in entries::<ProgramHeader>(&table).filter(|h| h.kind == program_kind::NOTE) {
        let notes = read(bias.wrapping_add(h.vaddr), h.memsz)?;
        let mut rest = &notes[..];
        while let Some((head, after)) = rest.split_at_checked(12) {
            let [name, content, kind] = *head.as_chunks::<4>().0 else { break };
            let (name, content) = (u32::from_le_bytes(name) as usize, u32::from_le_bytes(content) as usize);
            let start = name.next_multiple_of(4);
            let Some(id) = after.get(start..start + content) else { break };
            if u32::from_le_bytes(kind) == ID && after.starts_with(b"GNU\0") {
                return Some(id.iter().map(|byte| format!("{byte:02x}")).collect());
            }
            rest = after.get(start + content.next_multiple_of(4)..).unwrap_or_default();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_vdso_is_a_file() {
        let vdso = super::vdso().unwrap();
        assert!(vdso.starts_with(b"\x7fELF") && vdso.len() > 1000);
        assert!(vdso.windows(20).any(|w| w == b"__vdso_clock_gettime"));
        // A test may be linked without.
        assert!(super::build_id().is_none_or(|id| id.len() >= 16));
    }
}
