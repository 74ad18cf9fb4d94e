//! The options of a mounted image.

/// What is shown of an image.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub user_xattr: bool,
    pub acl: bool,
}
