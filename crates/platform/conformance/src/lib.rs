//! Tests that every platform must pass, and the small kernel they run on.
//!
//! Used by the platforms' own integration tests only: `conformance::suite!(make)`
//! defines one `#[test]` per guest program for the platform that `make()` returns.

#![forbid(unsafe_code)]
#![allow(missing_docs, clippy::missing_panics_doc, reason = "test support")]

pub mod kernel;
pub mod left;

pub use kernel::{Outcome, World};

/// Compiles a guest program of `guests/`; returns the executable's bytes.
pub fn compile(name: &str) -> Vec<u8> {
    compile_with(name, &[])
}

/// As [`compile`], with extra flags for the compiler.
pub fn compile_with(name: &str, flags: &[&str]) -> Vec<u8> {
    use std::sync::atomic::{AtomicU32, Ordering};
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let out = std::env::temp_dir().join(format!("ringfence-{name}-{}-{serial}", std::process::id()));
    let source = format!("{}/guests/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let status = std::process::Command::new("gcc")
        .args([
            "-O1",
            "-static",
            "-nostdlib",
            "-ffreestanding",
            "-fno-stack-protector",
            "-fno-pie",
            "-no-pie",
        ])
        .args(["-fcf-protection=none", "-fno-tree-loop-distribute-patterns", "-w", "-Wl,--build-id=none"])
        .args(flags)
        .arg("-o")
        .arg(&out)
        .arg(source)
        .status()
        .expect("gcc runs");
    assert!(status.success(), "{name}.c does not compile");
    let bytes = std::fs::read(&out).expect("compiled guest");
    let _ = std::fs::remove_file(&out);
    bytes
}

/// Runs a guest program that says "ok" and exits with 0.
pub fn expect_ok(platform: &std::sync::Arc<dyn platform::Platform>, name: &str) {
    let outcome = World::new(platform.clone()).run(&compile(name));
    assert_eq!((outcome.code, outcome.output.as_str()), (0, "ok\n"), "{name}");
}

/// One test per guest program.
#[macro_export]
macro_rules! suite {
    ($make:expr) => {
        $crate::suite!(@each $make, registers, memory, fork, threads, futex, storm, xstate, rewrite);
        #[test]
        fn hello() {
            let platform: std::sync::Arc<dyn platform::Platform> = $make();
            let outcome = $crate::World::new(platform).run(&$crate::compile("hello"));
            assert_eq!((outcome.code, outcome.output.as_str()), (7, "hello\n"));
        }
        #[test]
        fn dead_on_kill() {
            let platform: std::sync::Arc<dyn platform::Platform> = $make();
            $crate::kernel::dead_on_kill(&platform);
        }
        #[test]
        fn spaces_are_independent() {
            let platform: std::sync::Arc<dyn platform::Platform> = $make();
            let image = $crate::compile("fork");
            std::thread::scope(|s| {
                for _ in 0..4 {
                    s.spawn(|| {
                        let outcome = $crate::World::new(platform.clone()).run(&image);
                        assert_eq!((outcome.code, outcome.output.as_str()), (0, "ok\n"));
                    });
                }
            });
        }
    };
    (@each $make:expr, $($name:ident),*) => {$(
        #[test]
        fn $name() {
            let platform: std::sync::Arc<dyn platform::Platform> = $make();
            $crate::expect_ok(&platform, stringify!($name));
        }
    )*};
}
