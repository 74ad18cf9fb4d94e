//! File system types that mount(2) knows, filled in when the kernel starts.

use crate::fs_context::PathCaller;
use crate::fs_parameters::{Parameter, ParameterSpec, Value};
use abi::{Errno, Result};
use lock_order::RwLock;
use rights::cred::Cap;
use std::sync::Arc;
use user_ns::UserNamespace;
use vfs::mount::{SbFlags, SuperBlock};

/// What a new instance is made from.
pub struct Request {
    /// The parameters, in the order in which they were given.
    pub parameters: Vec<Parameter>,
    /// The source.
    pub source: Option<Vec<u8>>,
    /// Flags of the instance.
    pub flags: SbFlags,
}

impl Request {
    /// The parameters as mount(2) takes them: names, and texts behind `=`, with commas between them.
    pub fn text(&self) -> Vec<u8> {
        let word = |(name, value): &Parameter| match value {
            Value::String(s) => [name, &b"="[..], s].concat(),
            _ => name.clone(),
        };
        self.parameters.iter().map(word).collect::<Vec<_>>().join(&b","[..])
    }
}

/// Gives the user namespace that an instance belongs to which the caller makes.
type Owner<C> = Arc<dyn Fn(&C) -> Arc<UserNamespace> + Send + Sync>;
type Maker<C> = Arc<dyn Fn(&C, &Request) -> Result<Arc<SuperBlock>> + Send + Sync>;

/// A file system type. Its makers see the caller as `C`, which the layer that registers them knows.
pub struct FsType<C: ?Sized = dyn PathCaller> {
    /// As in /proc/filesystems.
    pub name: &'static str,
    /// Needs no device.
    pub nodev: bool,
    /// The parameters that it knows; `None` where only its maker can tell.
    pub known: Option<&'static [ParameterSpec]>,
    make: Maker<C>,
    /// Which user namespace an instance belongs to; `None` for a type that only the initial one mounts.
    owner: Option<Owner<C>>,
}

impl<C: ?Sized> Clone for FsType<C> {
    fn clone(&self) -> FsType<C> {
        FsType { make: self.make.clone(), owner: self.owner.clone(), ..*self }
    }
}

impl<C: PathCaller + ?Sized> FsType<C> {
    /// mount(2) takes names such as `fuse.sshfs` for it (FS_HAS_SUBTYPE).
    fn has_subtype(&self) -> bool {
        self.known.is_some_and(|known| known.iter().any(|(name, _)| *name == "subtype"))
    }

    /// The user namespace that an instance belongs to which the caller makes.
    pub fn owner(&self, cx: &C) -> Arc<UserNamespace> {
        self.owner.as_ref().map_or_else(|| cx.resources().user_ns.clone(), |owner| owner(cx))
    }

    /// An instance. EPERM without CAP_SYS_ADMIN in the user namespace that it is to belong to.
    pub fn create(&self, cx: &C, request: &Request) -> Result<Arc<SuperBlock>> {
        let owner = self.owner(cx);
        if !cx.creds().ns_capable(&owner, Cap::SYS_ADMIN) {
            return Err(Errno::EPERM);
        }
        let sb = (self.make)(cx, request)?;
        sb.set_user_ns(&owner);
        Ok(sb)
    }
}

/// The file system types of a kernel.
pub struct FsTypes<C: ?Sized = dyn PathCaller>(RwLock<Vec<FsType<C>>>);

impl<C: ?Sized> Default for FsTypes<C> {
    fn default() -> FsTypes<C> {
        FsTypes(RwLock::new(Vec::new()))
    }
}

impl<C: PathCaller + ?Sized> FsTypes<C> {
    /// Registers a type (again: replaces it). `make` gets the mounter and the options of mount(2), and gives the
    /// instance; `nodev` is for /proc/filesystems.
    pub fn register(
        &self,
        name: &'static str,
        nodev: bool,
        make: impl Fn(&C, &[u8]) -> Result<Arc<SuperBlock>> + Send + Sync + 'static,
    ) {
        self.add(FsType {
            name,
            nodev,
            known: None,
            owner: None,
            make: Arc::new(move |cx, r| make(cx, &r.text())),
        });
    }

    /// As [`FsTypes::register`] of a type without device that has these parameters and no others.
    pub fn register_with(
        &self,
        name: &'static str,
        known: &'static [ParameterSpec],
        make: impl Fn(&C, &Request) -> Result<Arc<SuperBlock>> + Send + Sync + 'static,
    ) {
        self.add(FsType { name, nodev: true, known: Some(known), owner: None, make: Arc::new(make) });
    }

    /// As [`FsTypes::register_with`] of a type that needs a device (FS_REQUIRES_DEV).
    pub fn register_for_devices(
        &self,
        name: &'static str,
        known: &'static [ParameterSpec],
        make: impl Fn(&C, &Request) -> Result<Arc<SuperBlock>> + Send + Sync + 'static,
    ) {
        self.add(FsType { name, nodev: false, known: Some(known), owner: None, make: Arc::new(make) });
    }

    /// A type that user namespaces may mount as well (FS_USERNS_MOUNT): `owner` tells which one an instance belongs to.
    pub fn open_to_user_namespaces(
        &self,
        name: &str,
        owner: impl Fn(&C) -> Arc<UserNamespace> + Send + Sync + 'static,
    ) {
        if let Some(t) = self.0.write().iter_mut().find(|t| t.name == name) {
            t.owner = Some(Arc::new(owner));
        }
    }

    fn add(&self, new: FsType<C>) {
        let mut t = self.0.write();
        t.retain(|x| x.name != new.name);
        t.push(new);
    }

    /// The type of this name; ENODEV.
    pub fn find(&self, name: &[u8]) -> Result<FsType<C>> {
        Ok(self.find_with_subtype(name)?.0)
    }

    /// The same, and what follows a dot in the name of a type that has subtypes.
    pub fn find_with_subtype<'a>(&self, name: &'a [u8]) -> Result<(FsType<C>, Option<&'a [u8]>)> {
        let all = self.0.read();
        if let Some(found) = all.iter().find(|x| x.name.as_bytes() == name) {
            return Ok((found.clone(), None));
        }
        let dot = name.iter().position(|&b| b == b'.').ok_or(Errno::ENODEV)?;
        let found = all.iter().find(|x| x.has_subtype() && x.name.as_bytes() == &name[..dot]);
        Ok((found.ok_or(Errno::ENODEV)?.clone(), Some(&name[dot + 1..])))
    }

    /// Names with their nodev mark, for /proc/filesystems.
    pub fn names(&self) -> Vec<(&'static str, bool)> {
        self.0.read().iter().map(|x| (x.name, x.nodev)).collect()
    }
}
