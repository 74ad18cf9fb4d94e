//! The program's own file in memory.

use std::ptr::addr_of;

unsafe extern "C" {
    /// First byte of the program in memory; defined by the linker.
    #[link_name = "__executable_start"]
    static START: u8;
    /// First byte after its code; defined by the linker.
    #[link_name = "etext"]
    static END: u8;
}

/// Takes the program's code and constants out of the process's page tables. They are mapped again, by a minor fault, where
/// they are used next: what only the start needed no longer counts as this process's memory.
pub fn forget_start() {
    const PAGE: usize = 4096;
    let start = addr_of!(START) as usize & !(PAGE - 1);
    let end = addr_of!(END) as usize & !(PAGE - 1);
    // SAFETY: from the start to the end of the code the linker puts read-only segments only (headers, constants, code),
    // which are private mappings of the executable file and were never written: a position-independent program has its
    // relocations in the segments after the code. Such pages read the same after MADV_DONTNEED. Their tail, which may
    // share a page with something else, is left alone.
    unsafe { libc::madvise(start as *mut libc::c_void, end.saturating_sub(start), libc::MADV_DONTNEED) };
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_program_goes_on() {
        super::forget_start();
        assert_eq!(format!("{}", 1 + 1), "2");
        super::forget_start();
    }
}
