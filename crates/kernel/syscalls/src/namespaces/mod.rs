//! Namespaces.

pub(crate) mod ns;
