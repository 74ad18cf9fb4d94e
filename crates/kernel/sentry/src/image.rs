//! The image of a checkpoint: saving the kernel to it, and starting from it.

use crate::errors::other;
use crate::fds::Fds;
use crate::machine::here;
use checkpoint::{ContainerState, Obstacle, RestoredContainer, Restoring, SandboxState, SavedContainer};
use hostsys::page_file::PageFile;
use image::{About, PageSource};
use netstack::tcp::Outside;
use platform::Platform;
use spec::{SandboxSpec, StartError};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use task::{Current, Kernel};

/// An image that a kernel starts from.
pub(crate) struct Image {
    /// Everything but pages.
    pub(crate) state: SandboxState,
    pages: PageFile,
    /// Files of earlier images that it names.
    layers: Vec<PageFile>,
    outside: Outside,
    /// Device and inode number of the file of metadata.
    pub(crate) identity: (u64, u64),
}

/// As many containers a sandbox can have.
const MOST: usize = 512;

/// Whether the containers beside the first can be those of one sandbox.
fn check(further: &[ContainerState]) -> Result<(), &'static str> {
    let indexes: BTreeSet<u32> = further.iter().map(|one| one.index).collect();
    if further.len() >= MOST || indexes.len() != further.len() || indexes.contains(&0) {
        return Err("a container is there twice, or there are too many");
    }
    Ok(())
}

/// Device and inode number of a file.
fn identity(file: &OwnedFd) -> Result<(u64, u64), StartError> {
    let stat = hostsys::fs::stat(file).map_err(|e| other(format!("image of the checkpoint: {e}")))?;
    Ok((stat.dev, stat.ino))
}

impl Image {
    /// The image that a further container names. It is not read: the sandbox has it.
    pub(crate) fn named(image: spec::ImageSpec, fds: &mut Fds) -> Result<(u64, u64), StartError> {
        identity(&fds.take(image.metadata)?)
    }

    /// Reads the image of a specification, if it has one.
    pub(crate) fn open(
        spec: &SandboxSpec,
        fds: &mut Fds,
        platform: &dyn Platform,
    ) -> Result<Option<Image>, StartError> {
        let Some(image) = spec.image else { return Ok(None) };
        let (metadata, pages) = (fds.take(image.metadata)?, fds.take(image.pages)?);
        let identity = identity(&metadata)?;
        let said = |error: &dyn std::fmt::Display| other(format!("image of the checkpoint: {error}"));
        let mut bytes = Vec::new();
        File::from(metadata).take(checkpoint::LONGEST).read_to_end(&mut bytes).map_err(|e| said(&e))?;
        let (state, about, sums) = checkpoint::decode(&bytes, &here(platform)).map_err(|e| said(&e))?;
        check(&state.further).map_err(|e| said(&e))?;
        let pages = PageFile::checked(Arc::new(pages), sums).map_err(|e| said(&e))?;
        if pages.len() != about.pages {
            let (found, want) = (pages.len(), about.pages);
            return Err(said(&format!("the file of pages has {found} bytes, and had {want}")));
        }
        let pages = pages.executable().map_err(|e| said(&e))?;
        if image.layers != about.layers.len() {
            return Err(said(&"it is a clone's, of use only at once"));
        }
        let mut layers = Vec::new();
        for (n, length) in about.layers.iter().enumerate() {
            let layer = PageFile::open(Arc::new(fds.take(image.pages + 1 + n)?)).map_err(|e| said(&e))?;
            if layer.len() != *length {
                return Err(said(&"a file of pages that it names has changed"));
            }
            layers.push(layer.executable().map_err(|e| said(&e))?);
        }
        let outside = match image.keep_tcp {
            true if about.ends_connections => Outside::Missing,
            true => Outside::Keep,
            false => Outside::Reset,
        };
        Ok(Some(Image { state, pages, layers, outside, identity }))
    }

    /// The threads of the containers, which wait to be started, those of first processes before others; and the files of pages.
    pub(crate) fn restore(
        self,
        kernel: &Arc<Kernel>,
        containers: &[RestoredContainer],
    ) -> Result<(Vec<Current>, Vec<PageFile>), StartError> {
        let unix = kernel.families.unix().ok_or_else(|| other("there are no Unix sockets".into()))?;
        let Image { state, pages, layers, outside, identity: _ } = self;
        let restoring = Restoring { unix, containers, pages: &pages, layers: &layers, outside };
        let threads = checkpoint::restore(kernel, state, &restoring);
        let threads = threads.map_err(|error| other(format!("image of the checkpoint: {error}")))?;
        Ok((threads, std::iter::once(pages).chain(layers).collect()))
    }
}

/// Names what cannot be saved.
fn refused(found: &[Obstacle]) -> StartError {
    /// So many are named.
    const NAMED: usize = 10;
    let named: Vec<_> = found.iter().take(NAMED).map(|obstacle| obstacle.what.as_str()).collect();
    let more = match found.len().saturating_sub(NAMED) {
        0 => String::new(),
        n => format!("; and {n} more"),
    };
    other(format!("cannot save the container: {}{more}", named.join("; ")))
}

/// What an image is for.
#[derive(Clone, Copy)]
pub(crate) enum Purpose<'a> {
    /// To be kept: it has checksums, and needs no other file. `spares` as for [`checkpoint::Saving`]; `ends_connections`: hosts
    /// outside are told that their connections end.
    Image { spares: bool, ends_connections: bool },
    /// For a clone that is made at once: it names pages of these files, and has no checksums.
    Clone(&'a [PageFile]),
}

/// What a sandbox is saved with.
pub(crate) struct Saving<'a> {
    /// Its containers, the first one first.
    pub(crate) containers: Vec<SavedContainer<'a>>,
    pub(crate) purpose: Purpose<'a>,
}

/// Saves the kernel to the files of metadata and pages. `after` runs when all is written, and before the threads go on.
pub(crate) fn save(
    kernel: &Arc<Kernel>,
    Saving { containers, purpose }: Saving<'_>,
    [metadata, pages]: [OwnedFd; 2],
    after: impl FnOnce(),
) -> Result<(), StartError> {
    let found = checkpoint::obstacles_of(kernel);
    if !found.is_empty() {
        return Err(refused(&found));
    }
    let unix = kernel.families.unix().ok_or_else(|| other("there are no Unix sockets".into()))?;
    let pages = Arc::new(pages);
    let (pages, layers, spares, ends_connections) = match purpose {
        Purpose::Image { spares, ends_connections } => {
            (PageFile::create(pages), &[][..], spares, ends_connections)
        }
        Purpose::Clone(layers) => (PageFile::create_without_sums(pages), layers, false, false),
    };
    let pages = Arc::new(pages);
    let standstill = kernel.stand_still().ok_or_else(|| other("another checkpoint is being made".into()))?;
    let standstill = standstill.map_err(|missing| {
        let named = missing.threads.iter().map(|(tid, name, call)| match call {
            Some(call) => format!("thread {tid} ({name}) stays in system call {call}"),
            None => format!("thread {tid} ({name}) does not come to a stand"),
        });
        other(format!("cannot save the container: {}", named.collect::<Vec<_>>().join("; ")))
    })?;
    let keeps = !layers.is_empty();
    let saving = checkpoint::Saving { containers, unix, pages: pages.clone(), keeps, spares };
    let state = checkpoint::save(&standstill, &saving).map_err(|found| refused(&found))?;
    let written = pages.finish().map_err(|error| other(format!("file of pages: {error}")))?;
    let layers = layers.iter().map(PageFile::len).collect();
    let about = About { pages: written, layers, ends_connections, ..here(&*kernel.platform) };
    let bytes = checkpoint::encode(&state, &about, pages.sums().as_ref()).map_err(other)?;
    File::from(metadata).write_all(&bytes).map_err(|error| other(format!("file of metadata: {error}")))?;
    after();
    drop(standstill);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_of_an_image_are_checked() {
        let of = |index: u32| ContainerState { index, ..ContainerState::default() };
        assert!(check(&[]).is_ok() && check(&[of(3), of(1)]).is_ok());
        for wrong in [vec![of(0)], vec![of(2), of(2)], (1..=512).map(of).collect()] {
            assert!(check(&wrong).is_err(), "{}", wrong.len());
        }
    }
}
