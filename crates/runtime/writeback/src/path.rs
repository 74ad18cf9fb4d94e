//! The current place of a walk.

use overlay_diff::{Kind, Node, PATH_MAX, State};

/// The path of the last node of a stream, from the root, with `/` between names and none at the ends.
#[derive(Default)]
pub(crate) struct Place {
    path: Vec<u8>,
    /// Lengths of the paths of the directories that are entered.
    dirs: Vec<usize>,
}

impl Place {
    /// The path of a node, which is entered if it is a directory. `None` when it is too long.
    pub(crate) fn node(&mut self, node: &Node<'_>) -> Option<&[u8]> {
        self.name(node.name)?;
        if node.kind() == Kind::Directory && node.state != State::Link {
            self.dirs.push(self.path.len());
        }
        Some(&self.path)
    }

    /// The path of a name of the current directory.
    pub(crate) fn name(&mut self, name: &[u8]) -> Option<&[u8]> {
        self.path.truncate(self.dirs.last().copied().unwrap_or(0));
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        (self.path.len() <= PATH_MAX).then_some(&self.path)
    }

    /// Leaves the current directory: its path.
    pub(crate) fn up(&mut self) -> &[u8] {
        let len = self.dirs.pop().unwrap_or(0);
        self.path.truncate(len);
        &self.path
    }
}
