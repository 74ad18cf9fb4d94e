//! What the stub copies along with a system call.

use conformance::{World, compile};
use platform::Context;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn buffers_come_along() {
    let platform = systrap::Systrap::new().unwrap_or_else(|e| panic!("{e}"));
    let mut w = World::new(platform);
    let hits = Arc::new(AtomicU32::new(0));
    let seen = hits.clone();
    w.hook = Some(Box::new(move |ctx: &mut dyn Context| {
        let r = *ctx.regs();
        if r.orig_rax == 1 {
            let mut buf = vec![0; r.rdx as usize];
            assert!(ctx.captured(r.rsi, &mut buf));
            let mut direct = buf.clone();
            assert_eq!(ctx.space().read(r.rsi, &mut direct), direct.len());
            assert_eq!(buf, direct);
            // Parts of it, but nothing around it.
            assert!(ctx.captured(r.rsi + 1, &mut buf[1..]));
            assert!(!ctx.captured(r.rsi + 1, &mut buf));
            assert!(!ctx.captured(r.rsi - 1, &mut buf));
            assert!(!ctx.captured(u64::MAX, &mut buf));
            seen.fetch_add(1, Ordering::Relaxed);
        }
        None
    }));
    let outcome = w.run(&compile("hello"));
    assert_eq!((outcome.code, outcome.output.as_str()), (7, "hello\n"));
    assert_eq!(hits.load(Ordering::Relaxed), 1);
}
