//! Tests of the tree of values.

use super::*;

#[test]
fn the_rows_form_a_tree() {
    let mut paths: Vec<_> = ROWS.iter().map(|r| r.path).collect();
    paths.sort_unstable();
    assert!(paths.windows(2).all(|w| w[0] != w[1] && !w[1].starts_with(&format!("{}/", w[0]))));
    assert!(ROWS.iter().all(|r| LEAVES.iter().any(|e| e.mode == r.mode)));
    let top: Vec<_> = Sysctls::entries(0).unwrap().into_iter().map(|x| x.0).collect();
    assert_eq!(top, ["fs", "kernel", "net", "user", "vm"]);
    let kernel = Sysctls::entries(0).unwrap().swap_remove(1).1;
    assert!(Sysctls::entries(kernel.n).unwrap().iter().any(|x| x.0 == "random"));
}

#[test]
fn uuids_are_well_formed() {
    let u = uuid();
    assert_eq!(u.len(), 36);
    assert_eq!(u.as_bytes()[14], b'4');
}
