//! Notifications of mq_notify(2).

use crate::thread_group::ThreadGroup;
use abi::{Errno, Result, SigInfo, Signal};
use mqueue::{COOKIE, Notification, NotifyReason};
use std::sync::Arc;
use vfs::OpenFile;

/// si_code of a signal of mq_notify(2).
const SI_MESGQ: i32 = -3;

type Tell = Box<dyn Fn(NotifyReason) + Send + Sync>;

/// The notification that a process asks for with sigev_notify, sigev_signo and sigev_value. SIGEV_THREAD, as mq_notify(3) of a C
/// library asks for it, names a netlink socket, and a cookie that the socket gets.
pub fn message_notification(
    group: &Arc<ThreadGroup>,
    (how, signo, value): (i32, i32, u64),
    socket: Option<&(Arc<OpenFile>, [u8; COOKIE])>,
) -> Result<Notification> {
    let tell = match how {
        libc::SIGEV_NONE => Box::new(|_| {}),
        libc::SIGEV_SIGNAL => by_signal(group, Signal::new(signo).ok_or(Errno::EINVAL)?, value),
        libc::SIGEV_THREAD => by_message(socket.ok_or(Errno::EINVAL)?)?,
        _ => return Err(Errno::EINVAL),
    };
    let message = socket.map(|(file, cookie)| (file.id, *cookie));
    Ok(Notification { pid: group.tgid, how, signo, value, message, tell })
}

fn by_signal(group: &Arc<ThreadGroup>, signal: Signal, value: u64) -> Tell {
    let group = Arc::downgrade(group);
    Box::new(move |told| {
        if let (NotifyReason::Message { pid, uid }, Some(group)) = (told, group.upgrade()) {
            // A full queue of signals loses it, as on Linux.
            let pid = group.pid_seen(pid);
            let _ = group.send(SigInfo::queue(signal, SI_MESGQ, pid, uid, value));
        }
    })
}

/// The last byte of the cookie says what has happened.
fn by_message((file, cookie): &(Arc<OpenFile>, [u8; COOKIE])) -> Result<Tell> {
    const WOKEN_UP: u8 = 1;
    const REMOVED: u8 = 2;
    socket::netlink::check(file)?;
    let (file, cookie) = (Arc::downgrade(file), *cookie);
    Ok(Box::new(move |told| {
        let mut cookie = cookie;
        let [.., last] = &mut cookie;
        *last = match told {
            NotifyReason::Message { .. } => WOKEN_UP,
            NotifyReason::Withdrawn => REMOVED,
        };
        if let Some(file) = file.upgrade() {
            socket::netlink::tell(&file, &cookie);
        }
    }))
}
