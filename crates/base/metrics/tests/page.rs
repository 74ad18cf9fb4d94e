//! docs/metrics.md lists every figure. This test fails when the page is out of date;
//! `UPDATE_DOCS=1 cargo test -p metrics --test page` rewrites it.

use std::fmt::Write;

const BEGIN: &str = "<!-- figures: begin -->\n";
const END: &str = "<!-- figures: end -->\n";

fn table() -> String {
    let mut out = String::from(
        "| name | type | unit | of | labels | from | meaning |\n|---|---|---|---|---|---|---|\n",
    );
    for figure in metrics::ALL {
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} | {} | {} | {} |",
            figure.name,
            figure.kind.name(),
            figure.unit.name(),
            figure.scope.name(),
            figure.labels.join(", "),
            figure.source.name(),
            figure.help
        );
    }
    out
}

#[test]
fn the_page_matches_the_list() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/metrics.md");
    let page = std::fs::read_to_string(path).expect("docs/metrics.md");
    let (head, rest) = page.split_once(BEGIN).expect("begin marker");
    let (old, tail) = rest.split_once(END).expect("end marker");
    let new = table();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, format!("{head}{BEGIN}{new}{END}{tail}")).expect("write the page");
    } else {
        assert!(
            old == new,
            "docs/metrics.md is out of date: run UPDATE_DOCS=1 cargo test -p metrics --test page"
        );
    }
}
