//! A sandbox that is restored from an image of several containers: those that were built from their specifications wait until
//! all are there.

use crate::console::Console;
use crate::errors::other;
use crate::first::First;
use crate::image::Image;
use checkpoint::{ContainerState, RestoredContainer};
use spec::{SandboxSpec, StartError};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A container that was built, and waits for the others.
pub(crate) struct Joined {
    /// What it gets from the image.
    pub(crate) restored: RestoredContainer,
    /// Its terminal, and the host's that serves it.
    pub(crate) console: Option<(Arc<Console>, OwnedFd)>,
    /// Its threads, which come.
    pub(crate) first: Arc<First>,
}

/// An image, and the containers that are there.
pub(crate) struct Awaited {
    /// The image.
    pub(crate) image: Image,
    /// The containers.
    pub(crate) joined: Vec<Joined>,
}

/// As messages name it. The image may hold anything.
fn named(one: &ContainerState) -> String {
    let name = if one.name.is_empty() { &one.id } else { &one.name };
    name.chars().take(LONGEST_NAME).flat_map(char::escape_debug).collect()
}

/// So many characters of a name are shown.
const LONGEST_NAME: usize = 100;

impl Awaited {
    /// The index in the image of a container that is to join. `image`: what its specification names as its image.
    pub(crate) fn place(&self, spec: &SandboxSpec, image: (u64, u64)) -> Result<u32, StartError> {
        if image != self.image.identity {
            return Err(other("restore it from the image that its sandbox is restored from".into()));
        }
        let all = &self.image.state.further;
        let mine = |one: &&ContainerState| match spec.name_in_pod.is_empty() {
            true => one.name.is_empty() && one.id == spec.id,
            false => one.name == spec.name_in_pod,
        };
        let name = if spec.name_in_pod.is_empty() { &spec.id } else { &spec.name_in_pod };
        let Some(found) = all.iter().find(mine) else {
            let has: Vec<_> = all.iter().map(named).collect();
            return Err(other(format!("the image has no container {name}; it has: {}", has.join(", "))));
        };
        match self.has(found.index) {
            true => Err(other(format!("the container {name} of the image is there already"))),
            false => Ok(found.index),
        }
    }

    fn has(&self, index: u32) -> bool {
        self.joined.iter().any(|one| one.restored.index == index)
    }

    /// The containers of the image that are not there.
    pub(crate) fn missing(&self) -> Vec<String> {
        let further = self.image.state.further.iter().filter(|one| !self.has(one.index));
        further.map(named).collect()
    }

    /// Whether all containers are there.
    pub(crate) fn is_complete(&self) -> bool {
        self.has(0) && self.missing().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_an_image_are_shown_without_control_characters() {
        let of = |index: u32| ContainerState { index, id: format!("id{index}"), ..ContainerState::default() };
        let hostile = ContainerState { name: "a\n\u{1b}[2J".repeat(1000), ..of(1) };
        assert!(named(&hostile).chars().all(|c| !c.is_control()) && named(&hostile).len() < 1000);
        assert_eq!(named(&of(7)), "id7");
    }
}
