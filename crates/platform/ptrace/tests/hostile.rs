//! A guest that attacks the stub: under ptrace none of its calls reaches the host.

use conformance::{World, compile_with};
use platform::{Context, Platform};
use std::sync::Arc;

fn make() -> Arc<dyn Platform> {
    ptrace::Ptrace::new().unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn every_call_is_emulated() {
    let mut w = World::new(make());
    w.hook =
        Some(Box::new(|ctx: &mut dyn Context| (ctx.regs().rip >= 0x7ffe_0000_0000).then_some(-38i64 as u64)));
    // exit and exit_group from the stub's text are ordinary calls here as well: the hook sees them first.
    let outcome = w.run(&compile_with("hostile", &["-DMODE=9", "-DWHAT=0"]));
    assert_eq!((outcome.code, outcome.output.as_str()), (0, "ok\n"));
}

#[test]
fn nothing_is_left() {
    conformance::left::nothing_is_left("nothing_is_left", make);
}
