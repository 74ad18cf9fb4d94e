//! What the outside may ask of a running kernel.

use crate::console::Console;
use crate::spec::{Running, WindowSize};
use abi::{SigInfo, Signal};
use std::sync::Arc;
use task::{Kernel, SI_HOST};

/// The kernel as the runtime sees it.
pub(crate) struct Control {
    pub kernel: Arc<Kernel>,
    pub console: Option<Arc<Console>>,
}

impl Running for Control {
    fn signal(&self, signo: i32) {
        let Some(sig) = Signal::new(signo) else { return };
        let info = SigInfo::new(sig, SI_HOST);
        let foreground = self.console.as_ref().and_then(|c| c.foreground());
        if let Some(pgid) = foreground
            && self.kernel.signal_pgrp(pgid, info)
        {
            return;
        }
        if let Some(g) = self.kernel.group(1) {
            let _ = g.send(info);
        }
    }

    fn resize(&self, size: WindowSize) {
        if let Some(c) = &self.console {
            c.resize(size);
        }
    }
}
