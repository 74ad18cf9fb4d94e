//! Entrance for `fuzz/`: the profiler's reading of a guest's file.

use crate::symbols;
use crate::unwind::Tables;

/// How many of some places in a file have a name, and whether the file says how to unwind.
pub fn names(file: &[u8]) -> (usize, bool) {
    let places = [0, 1, 0x40, 0x1000, 0x1234, file.len() as u64, u64::MAX];
    let names = symbols::names(&file, Some(&file), &places);
    let mut tables = Tables::read(&file);
    for place in places {
        if let Some(tables) = &mut tables {
            let _ = tables.rule(place);
        }
    }
    (names.iter().flatten().count(), tables.is_some())
}
