//! Names of the host kernel's functions, from /proc/kallsyms.

use std::io::{BufRead, Lines};

/// The function at each of these addresses, which are sorted. The list is long and read once.
pub(crate) fn names(list: Lines<impl BufRead>, addresses: &[u64]) -> Vec<Option<String>> {
    // For each address the highest symbol of those that are above the address before it.
    let mut best: Vec<Option<(u64, String)>> = vec![None; addresses.len()];
    for line in list.map_while(Result::ok) {
        let mut words = line.split_ascii_whitespace();
        let (Some(at), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else { continue };
        let Ok(at) = u64::from_str_radix(at, 16) else { continue };
        // A reader without the privilege sees zeros.
        if at == 0 || !matches!(kind, "t" | "T" | "w" | "W") {
            continue;
        }
        let Some(slot) = best.get_mut(addresses.partition_point(|address| *address < at)) else { continue };
        if slot.as_ref().is_none_or(|(old, _)| *old < at) {
            *slot = Some((at, name.to_string()));
        }
    }
    let mut last: Option<String> = None;
    best.into_iter()
        .map(|found| {
            last = found.map(|(_, name)| name).or(last.take());
            last.clone()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_below_is_found() {
        let list =
            "ffff1000 T a\nffff3000 t c\t[module]\nffff2000 T b\nffff2800 d data\n0 T hidden\nnonsense\n";
        let found = names(list.as_bytes().lines(), &[0xfff, 0xffff1000, 0xffff1fff, 0xffff2900, 0xffff9000]);
        let found: Vec<_> = found.iter().map(|name| name.as_deref()).collect();
        assert_eq!(found, [None, Some("a"), Some("a"), Some("b"), Some("c")]);
    }
}
