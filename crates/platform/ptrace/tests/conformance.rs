//! The tests that every platform must pass, on ptrace.

use platform::Platform;
use std::sync::Arc;

fn make() -> Arc<dyn Platform> {
    ptrace::Ptrace::new().unwrap_or_else(|e| panic!("{e}"))
}

conformance::suite!(make);
