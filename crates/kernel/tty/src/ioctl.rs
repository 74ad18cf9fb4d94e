//! ioctl_tty(2). Most requests on the master concern the slave.

use crate::pty::{Pty, Side};
use crate::termios::{Termios, WinSize};
use abi::stat::makedev;
use abi::{Errno, Result, Signal};
use caller::UserMemory;
use rights::Cap;
use std::sync::Arc;
use vfs::Caller;

const TCGETS2: u32 = 0x802c_542a;
const TCSETS2: u32 = 0x402c_542b;
const TCSETSW2: u32 = 0x402c_542c;
const TCSETSF2: u32 = 0x402c_542d;
const TIOCGPTN: u32 = 0x8004_5430;
const TIOCSPTLCK: u32 = 0x4004_5431;
const TIOCGDEV: u32 = 0x8004_5432;
const TIOCSIG: u32 = 0x4004_5436;
const TIOCGPKT: u32 = 0x8004_5438;
const TIOCGPTLCK: u32 = 0x8004_5439;
const TIOCGEXCL: u32 = 0x8004_5440;
const TIOCPKT: u32 = 0x5420;
const TIOCGETD: u32 = 0x5424;
const TIOCSETD: u32 = 0x5423;
const TCSBRKP: u32 = 0x5425;
const TIOCSBRK: u32 = 0x5427;
const TIOCCBRK: u32 = 0x5428;
const TIOCGSID: u32 = 0x5429;
const TIOCGLCKTRMIOS: u32 = 0x5456;
const TIOCVHANGUP: u32 = 0x5437;
const TIOCGSOFTCAR: u32 = 0x5419;
const TIOCSSOFTCAR: u32 = 0x541a;

/// The structures in which attributes come.
#[derive(Clone, Copy)]
enum Form {
    Termio,
    Termios,
    Termios2,
}

type Mem<'a> = &'a mut (dyn UserMemory + 'a);

pub(crate) fn ioctl(
    pty: &Arc<Pty>,
    side: Side,
    cx: &dyn Caller,
    mem: &mut dyn UserMemory,
    cmd: u32,
    arg: u64,
) -> Result<u64> {
    if let Some(r) = attributes(pty, cx, mem, cmd, arg) {
        return r.map(|()| 0);
    }
    if let Some(r) = jobs(pty, side, cx, mem, cmd, arg) {
        return r.map(|()| 0);
    }
    if side == Side::Master
        && let Some(r) = master_only(pty, mem, cmd, arg)
    {
        return r.map(|()| 0);
    }
    rest(pty, side, cx, mem, cmd, arg).map(|()| 0)
}

/// Termios and window size.
fn attributes(pty: &Pty, cx: &dyn Caller, mem: Mem<'_>, cmd: u32, arg: u64) -> Option<Result<()>> {
    let get = || *pty.inner.lock().ldisc.termios();
    let set = |mem: Mem<'_>, form: Form, flush: bool| -> Result<()> {
        pty.check_foreground(cx, Signal::SIGTTOU)?;
        let t = match form {
            Form::Termios2 => mem.read_value::<Termios>(arg)?,
            Form::Termios => {
                let mut b = [0; 36];
                mem.copy_in(arg, &mut b)?;
                get().with_short(&b)
            }
            Form::Termio => {
                let mut b = [0; 18];
                mem.copy_in(arg, &mut b)?;
                get().with_old(&b)
            }
        };
        pty.set_termios(t, flush);
        Ok(())
    };
    Some(match cmd as u64 {
        libc::TCGETS => mem.copy_out(arg, &get().short()),
        libc::TCSETS | libc::TCSETSW => set(mem, Form::Termios, false),
        libc::TCSETSF => set(mem, Form::Termios, true),
        libc::TCGETA => mem.copy_out(arg, &get().old()),
        libc::TCSETA | libc::TCSETAW => set(mem, Form::Termio, false),
        libc::TCSETAF => set(mem, Form::Termio, true),
        _ if cmd == TCGETS2 => mem.write_value(arg, &get()),
        _ if cmd == TCSETS2 || cmd == TCSETSW2 => set(mem, Form::Termios2, false),
        _ if cmd == TCSETSF2 => set(mem, Form::Termios2, true),
        libc::TIOCGWINSZ => {
            let size = pty.inner.lock().size;
            mem.write_value(arg, &size)
        }
        libc::TIOCSWINSZ => mem.read_value::<WinSize>(arg).map(|s| pty.resize(s)),
        _ => return None,
    })
}

/// Sessions and process groups.
fn jobs(pty: &Arc<Pty>, side: Side, cx: &dyn Caller, mem: Mem<'_>, cmd: u32, arg: u64) -> Option<Result<()>> {
    Some(match cmd as u64 {
        libc::TIOCGPGRP if side == Side::Slave && !pty.controls(cx) => Err(Errno::ENOTTY),
        libc::TIOCGPGRP => {
            let pgrp = cx.pid_vnr(pty.inner.lock().pgrp);
            mem.write_value(arg, &pgrp)
        }
        libc::TIOCSPGRP => set_foreground(pty, cx, mem, arg),
        _ if cmd == TIOCGSID => {
            let session = pty.inner.lock().session;
            if (side == Side::Slave && !pty.controls(cx)) || session == 0 {
                Err(Errno::ENOTTY)
            } else {
                mem.write_value(arg, &cx.pid_vnr(session))
            }
        }
        libc::TIOCSCTTY => set_controlling(pty, cx, arg),
        // A master is not a controlling terminal.
        libc::TIOCNOTTY if side == Side::Master => Err(Errno::ENOTTY),
        libc::TIOCNOTTY => give_up(pty, cx),
        _ => return None,
    })
}

fn set_foreground(pty: &Pty, cx: &dyn Caller, mem: Mem<'_>, arg: u64) -> Result<()> {
    match pty.check_foreground(cx, Signal::SIGTTOU) {
        Err(Errno::EIO) => return Err(Errno::ENOTTY),
        r => r?,
    }
    if !pty.controls(cx) {
        return Err(Errno::ENOTTY);
    }
    let pgrp: i32 = mem.read_value(arg)?;
    if pgrp < 0 {
        return Err(Errno::EINVAL);
    }
    let pgrp = cx.find_vpid(pgrp);
    let session = pty.job.session_of(pgrp).ok_or(Errno::ESRCH)?;
    if session != cx.sid() {
        return Err(Errno::EPERM);
    }
    pty.inner.lock().set_foreground(cx, pgrp);
    Ok(())
}

fn set_controlling(pty: &Arc<Pty>, cx: &dyn Caller, arg: u64) -> Result<()> {
    let leader = cx.pid() == cx.sid();
    let session = pty.inner.lock().session;
    if leader && session == cx.sid() {
        return Ok(());
    }
    if !leader || pty.job.terminal(cx.sid()).is_some() {
        return Err(Errno::EPERM);
    }
    if session != 0 {
        if arg != 1 || !cx.creds().capable(Cap::SYS_ADMIN) {
            return Err(Errno::EPERM);
        }
        pty.drop_session();
    }
    pty.take_session(cx);
    Ok(())
}

fn give_up(pty: &Pty, cx: &dyn Caller) -> Result<()> {
    if !pty.controls(cx) {
        return Err(Errno::ENOTTY);
    }
    // Only the leader's decision concerns the session; others keep theirs as long as it does.
    if cx.pid() == cx.sid() {
        let (_, pgrp) = pty.drop_session();
        if pgrp > 0 {
            pty.job.signal_pgrp(pgrp, Signal::SIGHUP);
            pty.job.signal_pgrp(pgrp, Signal::SIGCONT);
        }
    }
    Ok(())
}

fn flag(on: bool) -> i32 {
    on as i32
}

fn master_only(pty: &Pty, mem: Mem<'_>, cmd: u32, arg: u64) -> Option<Result<()>> {
    Some(match cmd {
        TIOCGPTN => mem.write_value(arg, &pty.index),
        TIOCSPTLCK => mem.read_value::<i32>(arg).map(|v| pty.inner.lock().locked = v != 0),
        TIOCGPTLCK => {
            let v = flag(pty.inner.lock().locked);
            mem.write_value(arg, &v)
        }
        TIOCPKT => mem.read_value::<i32>(arg).map(|v| {
            pty.change(|i, _| i.packet = v != 0);
        }),
        TIOCGPKT => {
            let v = flag(pty.inner.lock().packet);
            mem.write_value(arg, &v)
        }
        TIOCSIG => match Signal::new(arg as i32) {
            Some(s @ (Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTSTP)) => {
                pty.change(|_, fx| fx.signals.push(s));
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        },
        _ => return None,
    })
}

fn rest(pty: &Pty, side: Side, cx: &dyn Caller, mem: Mem<'_>, cmd: u32, arg: u64) -> Result<()> {
    match cmd as u64 {
        libc::FIONREAD => {
            let i = pty.inner.lock();
            let n = if side == Side::Master { i.ldisc.out.len() } else { i.ldisc.readable() };
            drop(i);
            mem.write_value(arg, &(n as i32))
        }
        // What the slave wrote is the master's at once.
        libc::TIOCOUTQ => mem.write_value(arg, &0i32),
        libc::TCFLSH => {
            pty.check_foreground(cx, Signal::SIGTTOU)?;
            match (arg as i32, side) {
                (libc::TCIFLUSH, Side::Slave) => pty.flush(true, false),
                (libc::TCOFLUSH, Side::Slave) => pty.flush(false, true),
                (libc::TCIOFLUSH, Side::Slave) => pty.flush(true, true),
                (libc::TCIFLUSH, Side::Master) => pty.flush_master(true, false),
                (libc::TCOFLUSH, Side::Master) => pty.flush_master(false, true),
                (libc::TCIOFLUSH, Side::Master) => pty.flush_master(true, true),
                _ => return Err(Errno::EINVAL),
            }
            Ok(())
        }
        libc::TCXONC => {
            pty.check_foreground(cx, Signal::SIGTTOU)?;
            let t = *pty.inner.lock().ldisc.termios();
            match arg as i32 {
                libc::TCOOFF => pty.set_stopped(true),
                libc::TCOON => pty.set_stopped(false),
                libc::TCIOFF => pty.send_raw(t.c(libc::VSTOP)),
                libc::TCION => pty.send_raw(t.c(libc::VSTART)),
                _ => return Err(Errno::EINVAL),
            }
            Ok(())
        }
        libc::TCSBRK => pty.check_foreground(cx, Signal::SIGTTOU),
        _ if cmd == TCSBRKP => pty.check_foreground(cx, Signal::SIGTTOU),
        _ if cmd == TIOCSBRK || cmd == TIOCCBRK => Ok(()),
        libc::TIOCSTI => {
            if !cx.creds().capable(Cap::SYS_ADMIN) {
                return Err(Errno::EIO);
            }
            let b: u8 = mem.read_value(arg)?;
            pty.type_in(&[b]).map(drop)
        }
        libc::TIOCEXCL | libc::TIOCNXCL => {
            pty.inner.lock().exclusive = cmd as u64 == libc::TIOCEXCL;
            Ok(())
        }
        _ if cmd == TIOCGEXCL => {
            let v = flag(pty.inner.lock().exclusive);
            mem.write_value(arg, &v)
        }
        _ if cmd == TIOCGETD => mem.write_value(arg, &0i32),
        _ if cmd == TIOCSETD => match mem.read_value::<i32>(arg)? {
            0 => Ok(()),
            _ => Err(Errno::EINVAL),
        },
        _ if cmd == TIOCGDEV => mem.write_value(arg, &(makedev(136, pty.index) as u32)),
        _ if cmd == TIOCVHANGUP => {
            if !cx.creds().capable(Cap::SYS_ADMIN) {
                return Err(Errno::EPERM);
            }
            match side {
                Side::Slave => pty.hang_up_slave(),
                Side::Master => pty.hang_up_master(),
            }
            Ok(())
        }
        // The carrier need not be there: that is what CLOCAL says.
        _ if cmd == TIOCGSOFTCAR => {
            let on = flag(pty.inner.lock().ldisc.termios().cflag & libc::CLOCAL != 0);
            mem.write_value(arg, &on)
        }
        _ if cmd == TIOCSSOFTCAR => {
            let on: i32 = mem.read_value(arg)?;
            let mut t = *pty.inner.lock().ldisc.termios();
            t.cflag = if on != 0 { t.cflag | libc::CLOCAL } else { t.cflag & !libc::CLOCAL };
            pty.set_termios(t, false);
            Ok(())
        }
        _ if cmd == TIOCGLCKTRMIOS => mem.copy_out(arg, &[0; 36]),
        _ => Err(Errno::ENOTTY),
    }
}
