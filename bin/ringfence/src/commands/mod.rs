//! One module per subcommand.

pub(crate) mod do_;
pub(crate) mod inspect;
pub(crate) mod run;
pub(crate) mod spec;
