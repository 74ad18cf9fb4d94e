//! File system types that mount(2) knows, filled in when the kernel starts.

use crate::caller::Caller;
use crate::mount::SuperBlock;
use abi::{Errno, Result};
use ranked::RwLock;
use std::sync::Arc;

type Maker = Arc<dyn Fn(&dyn Caller, &[u8]) -> Result<Arc<SuperBlock>> + Send + Sync>;

struct FsType {
    name: &'static str,
    nodev: bool,
    make: Maker,
}

/// The file system types of a kernel.
#[derive(Default)]
pub struct FsTypes(RwLock<Vec<FsType>>);

impl FsTypes {
    /// Registers a type (again: replaces it). `make` gets who mounts and the options of mount(2), and gives the instance;
    /// `nodev` is for /proc/filesystems.
    pub fn register(
        &self,
        name: &'static str,
        nodev: bool,
        make: impl Fn(&dyn Caller, &[u8]) -> Result<Arc<SuperBlock>> + Send + Sync + 'static,
    ) {
        let mut t = self.0.write();
        t.retain(|x| x.name != name);
        t.push(FsType { name, nodev, make: Arc::new(make) });
    }

    /// An instance of a type with these options; ENODEV for an unknown type.
    pub fn create(&self, cx: &dyn Caller, name: &str, options: &[u8]) -> Result<Arc<SuperBlock>> {
        let make = self.0.read().iter().find(|x| x.name == name).map(|x| x.make.clone());
        make.ok_or(Errno::ENODEV)?(cx, options)
    }

    /// Names with their nodev mark, for /proc/filesystems.
    pub fn names(&self) -> Vec<(&'static str, bool)> {
        self.0.read().iter().map(|x| (x.name, x.nodev)).collect()
    }
}
