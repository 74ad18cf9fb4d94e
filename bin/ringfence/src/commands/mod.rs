//! One module per subcommand, or for a few that belong together.

pub(crate) mod create;
pub(crate) mod debug;
pub(crate) mod do_;
pub(crate) mod end;
pub(crate) mod exec;
pub(crate) mod inspect;
pub(crate) mod install;
pub(crate) mod resources;
pub(crate) mod spec;
