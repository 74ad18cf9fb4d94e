//! docs/compatibility.md lists every system call from the table. This test fails when the page is
//! out of date; `UPDATE_DOCS=1 cargo test -p syscalls --test compatibility` rewrites it.

use std::fmt::Write;
use syscalls::Support;

const BEGIN: &str = "<!-- system calls: begin -->\n";
const END: &str = "<!-- system calls: end -->\n";

fn table() -> String {
    let mut rows: Vec<_> = syscalls::all_rows().collect();
    rows.sort_by_key(|r| r.nr);
    let count = |f: fn(&Support) -> bool| rows.iter().filter(|r| f(&r.support)).count();
    let full = count(|s| matches!(s, Support::Full));
    let partial = count(|s| matches!(s, Support::Partial(_)));
    let absent = count(|s| matches!(s, Support::Absent(_)));
    let mut out = format!(
        "{} system calls have a handler: {full} full, {partial} partial, {absent} that answer as a kernel configured \
         without them. All others\nanswer ENOSYS.\n\n| nr | call | support | note |\n|---|---|---|---|\n",
        rows.len()
    );
    for r in rows {
        let (s, note) = match r.support {
            Support::Full => ("full", ""),
            Support::Partial(n) => ("partial", n),
            Support::Absent(n) => ("absent", n),
        };
        let _ = writeln!(out, "| {} | {} | {s} | {note} |", r.nr, r.name);
    }
    out
}

#[test]
fn the_page_matches_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/compatibility.md");
    let page = std::fs::read_to_string(path).expect("docs/compatibility.md");
    let (head, rest) = page.split_once(BEGIN).expect("begin marker");
    let (old, tail) = rest.split_once(END).expect("end marker");
    let new = table();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, format!("{head}{BEGIN}{new}{END}{tail}")).expect("write the page");
    } else {
        assert!(
            old == new,
            "docs/compatibility.md is out of date: run UPDATE_DOCS=1 cargo test -p syscalls --test compatibility"
        );
    }
}
