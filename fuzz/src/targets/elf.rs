//! ELF files: what the kernel would load lies where it says, and the profiler finds names in any file.

use super::outcome;

pub(super) fn run(input: &[u8]) -> u64 {
    let mut read = |offset: u64, buf: &mut [u8]| {
        let from = usize::try_from(offset).ok().and_then(|offset| input.get(offset..)).unwrap_or_default();
        let len = from.len().min(buf.len());
        buf[..len].copy_from_slice(&from[..len]);
        Ok(len)
    };
    let loaded = elf::parse(&mut read);
    if let Ok(image) = &loaded {
        let (low, high) = image.span();
        for segment in &image.segments {
            assert!(segment.filesz <= segment.memsz && segment.vaddr.checked_add(segment.memsz).is_some());
            assert!(low <= segment.vaddr && segment.vaddr + segment.memsz <= high);
        }
    }
    let names = profile::fuzz::names(input);
    let loaded =
        loaded.map(|image| (image.segments.len(), image.broken, image.interp.is_some(), image.exec_stack));
    outcome((loaded.map_err(|error| error.raw()), names))
}
