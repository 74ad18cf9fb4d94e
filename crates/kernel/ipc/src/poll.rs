//! Waiting for one of several files: the core of poll(2), ppoll(2), select(2), pselect6(2).

use std::sync::Arc;
use std::time::Instant;
use vfs::{Caller, OpenFile};
use wait::{Events, Stop, Subscription};

/// One file to watch.
pub struct Watch {
    /// The file; `None` for a descriptor that is to be ignored.
    pub file: Option<Arc<OpenFile>>,
    /// What is asked for; ERR and HUP always are.
    pub events: Events,
    /// What is there.
    pub revents: Events,
}

impl Watch {
    /// A watch on `file`.
    pub fn new(file: Option<Arc<OpenFile>>, events: Events) -> Watch {
        Watch { file, events: events | Events::ERR | Events::HUP, revents: Events::NONE }
    }
}

fn check(cx: &dyn Caller, watches: &mut [Watch]) -> usize {
    let mut n = 0;
    for w in watches {
        w.revents = match &w.file {
            Some(f) => f.ops.poll(cx, f).intersect(w.events),
            None => Events::NONE,
        };
        n += !w.revents.is_empty() as usize;
    }
    n
}

/// Fills in `revents` and returns how many are not empty. Sleeps until one is, or the deadline
/// has passed (then 0); with `None` without end. A deadline in the past only looks.
pub fn poll(cx: &dyn Caller, watches: &mut [Watch], deadline: Option<Instant>) -> Result<usize, Stop> {
    let n = check(cx, watches);
    if n > 0 || deadline.is_some_and(|d| d <= Instant::now()) {
        return Ok(n);
    }
    let waiter = cx.waiter();
    let _subs: Vec<Subscription> = watches
        .iter()
        .filter_map(|w| {
            let q = w.file.as_ref()?.ops.wait_queue(cx)?;
            Some(q.subscribe(w.events, waiter.clone()))
        })
        .collect();
    loop {
        let n = check(cx, watches);
        if n > 0 {
            return Ok(n);
        }
        // After an interruption too: the signal may announce what is waited for.
        match waiter.sleep(deadline) {
            Ok(()) => {}
            Err(stop) => match (check(cx, watches), stop) {
                (0, Stop::Interrupted) => return Err(stop),
                (n, _) => return Ok(n),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipe::Pipe;
    use caller::Blocking;
    use std::time::Duration;
    use vfs::testing::TestCaller;

    #[test]
    fn several_files() {
        let cx = TestCaller::with_caps(0);
        let ((r, w), (r2, _w2)) = (Pipe::pair(&cx, 0).unwrap(), Pipe::pair(&cx, 0).unwrap());
        let mut ws = [
            Watch::new(Some(r), Events::IN),
            Watch::new(None, Events::ALL),
            Watch::new(Some(r2), Events::IN),
        ];
        let soon = Some(Instant::now() + Duration::from_millis(2));
        assert_eq!(poll(&cx, &mut ws, soon), Ok(0));
        let t = std::thread::spawn(move || w.ops.write(&TestCaller::with_caps(0), &w, b"x", 0).unwrap());
        assert_eq!(poll(&cx, &mut ws, None), Ok(1));
        assert!(ws[0].revents.intersects(Events::IN) && ws[2].revents.is_empty());
        t.join().unwrap();
        cx.waiter().set_interrupted(true);
        ws[0].file = None;
        assert_eq!(poll(&cx, &mut ws, None), Err(Stop::Interrupted));
    }
}
