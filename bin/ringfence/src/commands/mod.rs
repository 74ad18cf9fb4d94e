//! One module per subcommand: its grammar, and how it maps to the crate `lifecycle`.

pub(crate) mod create;
pub(crate) mod debug;
pub(crate) mod delete;
pub(crate) mod do_;
mod do_secrets;
mod do_user;
pub(crate) mod events;
pub(crate) mod exec;
pub(crate) mod features;
pub(crate) mod id;
pub(crate) mod install;
pub(crate) mod kill;
pub(crate) mod list;
pub(crate) mod overlay;
pub(crate) mod pause;
pub(crate) mod port_forward;
pub(crate) mod ps;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod spec;
pub(crate) mod start;
pub(crate) mod state;
pub(crate) mod update;
pub(crate) mod wait;
