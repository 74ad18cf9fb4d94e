//! The open file of a Landlock ruleset. See landlock_create_ruleset(2).

use landlock::Ruleset;
use std::any::Any;
use vfs::{Caller, FileOps, OpenFile};
use wait::Events;

/// The file of a ruleset.
pub struct RulesetFile(pub Ruleset);

impl RulesetFile {
    /// The ruleset behind an open file, if it is one.
    pub fn of(file: &OpenFile) -> Option<&Ruleset> {
        file.ops.as_any().downcast_ref::<RulesetFile>().map(|file| &file.0)
    }
}

impl FileOps for RulesetFile {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> Events {
        Events::READABLE | Events::WRITABLE
    }
    fn link_name(&self) -> Option<String> {
        Some("anon_inode:[landlock-ruleset]".into())
    }
}
