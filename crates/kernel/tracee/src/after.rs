//! How a thread goes on after a stop. The thread itself knows that by the place where it is; this is for a thread that is made
//! from a checkpoint, and begins in its stop.

use serde::{Deserialize, Serialize};

/// What a thread does once its stop is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum After {
    /// It looks at its signals: a group stop or its like, or a step into a handler.
    Looks,
    /// A signal is delivered, which was dequeued when its process had had so many SIGCONTs.
    Delivers {
        /// SIGCONTs.
        continues: u32,
    },
    /// The signal of a fault is delivered.
    Forced {
        /// Trap number, error code, address.
        trap: [u64; 3],
        /// In the middle of a call; its exit comes then.
        in_call: bool,
    },
    /// A call begins.
    Enters {
        /// The stop's code.
        code: i32,
        /// It is not made (PTRACE_SYSEMU).
        emulated: bool,
    },
    /// A filter of seccomp(2) has seen a call.
    Filtered,
    /// A call is over.
    Exits {
        /// The stop's code.
        code: i32,
    },
    /// A call returns this.
    Returns(u64),
    /// execve(2) has replaced the program.
    Executes,
    /// The thread ends.
    Ends {
        /// Its end does not end the stop.
        begun: bool,
    },
}

impl After {
    /// The call is still to be made: its registers are not those of a result.
    pub fn calls(self) -> bool {
        matches!(self, After::Enters { .. } | After::Filtered)
    }
}
