//! The content of regular files, saved to an image and restored.

use crate::content::ContentState;
use crate::node::{Body, Node};
use abi::{Errno, Result};
use image::{PageSink, PageSource};
use vfs::Caller;

impl Node {
    /// The content of a regular file, its pages put into `pages`; `None` while it is still that of the layers. Nothing may
    /// write to the file meanwhile, by a mapping neither.
    pub fn content_state(&self, cx: &dyn Caller, pages: &dyn PageSink) -> Result<Option<ContentState>> {
        match &self.body {
            Body::File(c) => c.read().state(cx, pages),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Fills a new, empty regular file. Times and attributes are the caller's to set afterwards.
    pub fn restore_content(
        &self,
        cx: &dyn Caller,
        saved: &ContentState,
        pages: &dyn PageSource,
    ) -> Result<()> {
        match &self.body {
            Body::File(c) => c.write().restore(cx, &self.fs.storage, saved, pages),
            _ => Err(Errno::EINVAL),
        }
    }
}
