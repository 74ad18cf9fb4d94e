//! Descriptors passed with a specification, which names them by their indices.

use crate::errors::other;
use spec::{SandboxSpec, StartError};
use std::os::fd::OwnedFd;

/// Descriptors passed with the specification; each is taken once.
pub(crate) struct Fds(Vec<Option<OwnedFd>>);

impl Fds {
    /// All that were passed.
    pub(crate) fn new(fds: Vec<OwnedFd>) -> Self {
        Self(fds.into_iter().map(Some).collect())
    }

    /// Takes the descriptor with this index.
    pub(crate) fn take(&mut self, index: usize) -> Result<OwnedFd, StartError> {
        let fd = self.0.get_mut(index).and_then(Option::take);
        fd.ok_or_else(|| other(format!("descriptor {index} was not passed")))
    }

    /// A duplicate, for indices that several fields share.
    pub(crate) fn share(&mut self, index: usize) -> Result<OwnedFd, StartError> {
        let fd = self.0.get(index).and_then(Option::as_ref);
        let fd = fd.ok_or_else(|| other(format!("descriptor {index} was not passed")))?;
        fd.try_clone().map_err(|e| other(format!("descriptor {index}: {e}")))
    }
}

/// The files of the container's control group of the host, by name.
pub(crate) fn control_group(spec: &SandboxSpec, fds: &mut Fds) -> Result<Vec<(String, OwnedFd)>, StartError> {
    let named = spec.control_group.iter();
    named.map(|(name, index)| Ok((name.clone(), fds.take(*index)?))).collect()
}
