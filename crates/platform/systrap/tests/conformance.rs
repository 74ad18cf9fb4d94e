//! The tests that every platform must pass, on systrap.

use platform::Platform;
use std::sync::Arc;

fn make() -> Arc<dyn Platform> {
    systrap::Systrap::new().unwrap_or_else(|e| panic!("{e}"))
}

conformance::suite!(make);
