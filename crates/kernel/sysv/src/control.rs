//! What msgctl(2), semctl(2) and shmctl(2) do alike: they show an object.

use crate::ids::{Ids, Object};
use crate::perm::{IpcPerm, READ};
use abi::Result;
use lock_order::{Mutex, rank};
use pid::PidNamespace;
use user_ns::UserNamespace;
use vfs::Caller;

/// A table of objects of one kind.
pub(crate) type Table<T> = Mutex<Ids<T>, { rank::IPC_TABLE }>;

/// An object that programs can look at.
pub(crate) trait Shown: Object {
    /// `struct msqid_ds` and its like.
    type Ds;
    /// With process IDs as seen from this PID namespace, and the user IDs of the kernel.
    fn show(&self, ns: Option<&PidNamespace>) -> Self::Ds;
    /// Owner and mode in it.
    fn perm_in(ds: &mut Self::Ds) -> &mut IpcPerm;
}

/// The object as the caller sees it.
fn show<T: Shown>(cx: &dyn Caller, object: &T) -> T::Ds {
    let mut ds = object.show(cx.pid_ns().as_deref());
    let perm = T::perm_in(&mut ds);
    *perm = perm.shown_in(&cx.creds().user_ns);
    ds
}

/// IPC_STAT, in a namespace that `user_ns` owns. EINVAL, EIDRM, EACCES.
pub(crate) fn stat<T: Shown>(
    cx: &dyn Caller,
    table: &Table<T>,
    user_ns: &UserNamespace,
    id: i32,
) -> Result<T::Ds> {
    let object = table.lock().find(id)?;
    object.perm().check(cx, user_ns, READ)?;
    Ok(show(cx, &*object))
}

/// MSG_STAT, SEM_STAT, SHM_STAT, and with `any` MSG_STAT_ANY and its like: the whole ID, and the object. EINVAL, EACCES.
pub(crate) fn stat_at<T: Shown>(
    cx: &dyn Caller,
    table: &Table<T>,
    index: i32,
    any: bool,
) -> Result<(i32, T::Ds)> {
    let object = table.lock().at(cx, index, any)?;
    Ok((object.perm().id, show(cx, &*object)))
}
