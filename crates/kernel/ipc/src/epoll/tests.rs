use super::*;
use crate::eventfd::EventFd;
use crate::pipe::Pipe;
use std::time::Duration;
use vfs::testing::TestCaller;

const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;

fn ev(events: u32, data: u64) -> Event {
    Event { events, data }
}

fn bump(f: &OpenFile, cx: &TestCaller) {
    f.ops.write(cx, f, &1u64.to_ne_bytes(), 0).unwrap();
}

#[test]
fn level_edge_and_oneshot() {
    let cx = TestCaller::with_caps(0);
    let ep = Epoll::create(&TestCaller::with_caps(0));
    let ep = Epoll::of(&ep).unwrap();
    let f = EventFd::create(&cx, 0, 0).unwrap();
    ep.add(&cx, 3, &f, ev(IN, 7)).unwrap();
    assert_eq!(ep.add(&cx, 3, &f, ev(IN, 7)), Err(Errno::EEXIST));
    ep.add(&cx, 4, &f, ev(IN | EDGE, 8)).unwrap();
    ep.add(&cx, 5, &f, ev(IN | ONESHOT, 9)).unwrap();
    assert!(ep.collect(&cx, 9).is_empty());
    bump(&f, &cx);
    assert_eq!(ep.collect(&cx, 9), [ev(IN, 7), ev(IN, 8), ev(IN, 9)]);
    assert_eq!(ep.collect(&cx, 9), [ev(IN, 7)]);
    bump(&f, &cx);
    assert_eq!(ep.collect(&cx, 1).len(), 1);
    assert_eq!(ep.collect(&cx, 9).len(), 2);
    ep.modify(&cx, 5, &f, ev(IN | OUT | ONESHOT, 1)).unwrap();
    assert!(ep.collect(&cx, 9).contains(&ev(IN | OUT, 1)));
    ep.delete(3, &f).unwrap();
    assert_eq!(ep.delete(3, &f), Err(Errno::ENOENT));
    assert!(ep.collect(&cx, 9).is_empty());
}

#[test]
fn state_and_back() {
    let cx = TestCaller::with_caps(0);
    let (ep, again) = (Epoll::create(&cx), Epoll::create(&cx));
    let (ep, again) = (Epoll::of(&ep).unwrap(), Epoll::of(&again).unwrap());
    let files: Vec<_> = (0..4).map(|_| EventFd::create(&cx, 1, 0).unwrap()).collect();
    ep.add(&cx, 3, &files[0], ev(IN | EDGE, 1)).unwrap();
    ep.add(&cx, 4, &files[1], ev(IN | ONESHOT, 2)).unwrap();
    assert_eq!(ep.collect(&cx, 9).len(), 2);
    ep.add(&cx, 6, &files[3], ev(IN, 4)).unwrap();
    ep.add(&cx, 5, &files[2], ev(IN | EDGE, 3)).unwrap();
    let state = ep.state();
    let brief: Vec<_> = state.items.iter().map(|i| (i.fd, i.ready)).collect();
    assert_eq!(brief, [(6, true), (5, true), (3, false), (4, false)]);
    let find = |id| files.iter().find(|file| file.id == id).cloned();
    again.restore(&cx, &state, find).unwrap();
    assert_eq!(again.state(), state);
    // The edge and the one shot that have been reported are not reported again.
    assert_eq!(again.collect(&cx, 9), [ev(IN, 4), ev(IN, 3)]);
    bump(&files[1], &cx);
    bump(&files[0], &cx);
    assert!(again.collect(&cx, 9).contains(&ev(IN, 1)) && !again.collect(&cx, 9).contains(&ev(IN, 2)));
    // What has no file any more is left out.
    let empty = Epoll::create(&cx);
    let empty = Epoll::of(&empty).unwrap();
    empty.restore(&cx, &state, |_| None).unwrap();
    assert_eq!(empty.state(), EpollState::default());
}

#[test]
fn closing_removes_and_hup_is_always_asked_for() {
    let cx = TestCaller::with_caps(0);
    let epf = Epoll::create(&TestCaller::with_caps(0));
    let ep = Epoll::of(&epf).unwrap();
    let (r, w) = Pipe::pair(&cx, 0).unwrap();
    ep.add(&cx, 3, &r, ev(0, 1)).unwrap();
    drop(w);
    assert_eq!(ep.collect(&cx, 9), [ev(libc::EPOLLHUP as u32, 1)]);
    drop(r);
    assert!(ep.collect(&cx, 9).is_empty());
    assert!(ep.items.lock().is_empty());
    assert_eq!(ep.modify(&cx, 3, &Pipe::pair(&cx, 0).unwrap().0, ev(IN, 0)), Err(Errno::ENOENT));
}

#[test]
fn nesting() {
    let cx = TestCaller::with_caps(0);
    let eps: Vec<_> = (0..8).map(|_| Epoll::create(&TestCaller::with_caps(0))).collect();
    let ep = |i: usize| Epoll::of(&eps[i]).unwrap();
    assert_eq!(ep(0).add(&cx, 1, &eps[0], ev(IN, 0)), Err(Errno::EINVAL));
    let f = EventFd::create(&cx, 0, 0).unwrap();
    ep(0).add(&cx, 1, &f, ev(IN, 5)).unwrap();
    ep(1).add(&cx, 1, &eps[0], ev(IN, 6)).unwrap();
    assert_eq!(ep(0).add(&cx, 1, &eps[1], ev(IN, 0)), Err(Errno::ELOOP));
    assert!(ep(1).collect(&cx, 1).is_empty());
    bump(&f, &cx);
    assert_eq!(ep(1).collect(&cx, 1), [ev(IN, 6)]);
    assert_eq!(ep(0).collect(&cx, 1), [ev(IN, 5)]);
    let mut b = [0; 8];
    f.ops.read(&cx, &f, &mut b, 0).unwrap();
    assert!(ep(1).collect(&cx, 1).is_empty());
    assert_eq!(eps[1].ops.poll(&cx, &eps[1]), Events::NONE);
}

#[test]
fn waits() {
    let cx = Arc::new(TestCaller::with_caps(0));
    let epf = Epoll::create(&TestCaller::with_caps(0));
    let f = EventFd::create(&*cx, 0, 0).unwrap();
    Epoll::of(&epf).unwrap().add(&*cx, 3, &f, ev(IN, 7)).unwrap();
    let soon = Instant::now() + Duration::from_millis(3);
    let got = Epoll::of(&epf).unwrap().wait(&*cx, 1, Some(soon));
    assert_eq!(got, Ok(vec![]));
    let t = std::thread::spawn(move || Epoll::of(&epf).unwrap().wait(&TestCaller::with_caps(0), 1, None));
    bump(&f, &cx);
    assert_eq!(t.join().unwrap(), Ok(vec![ev(IN, 7)]));
}

#[test]
fn chains_end_at_five_however_they_are_built() {
    let cx = TestCaller::with_caps(0);
    let chain = |order: &dyn Fn(usize) -> usize| {
        let eps: Vec<_> = (0..12).map(|_| Epoll::create(&TestCaller::with_caps(0))).collect();
        let add = |i: usize| Epoll::of(&eps[i]).unwrap().add(&cx, 1, &eps[i + 1], ev(IN, 0));
        let results: Vec<_> = (0..11).map(|n| add(order(n)).is_ok()).collect();
        results
    };
    // From the top, from the bottom: four links, then one is missing.
    let four = |n: usize| n % 5 != 4;
    assert_eq!(chain(&|n| n), (0..11).map(four).collect::<Vec<_>>());
    assert_eq!(chain(&|n| 10 - n), (0..11).map(four).collect::<Vec<_>>());
}

#[test]
fn many_ways_are_looked_at_once() {
    let cx = TestCaller::with_caps(0);
    // Five layers of thirty, each watching all of the next: thirty to the fourth ways.
    let layers: Vec<Vec<_>> =
        (0..5).map(|_| (0..30).map(|_| Epoll::create(&TestCaller::with_caps(0))).collect()).collect();
    let start = Instant::now();
    for w in layers.windows(2) {
        for upper in &w[0] {
            for (fd, lower) in w[1].iter().enumerate() {
                Epoll::of(upper).unwrap().add(&cx, fd as i32, lower, ev(IN, 0)).unwrap();
            }
        }
    }
    assert!(start.elapsed() < Duration::from_secs(20));
    assert_eq!(Epoll::of(&layers[4][0]).unwrap().add(&cx, 99, &layers[0][0], ev(IN, 0)), Err(Errno::ELOOP));
    assert_eq!(
        Epoll::of(&Epoll::create(&TestCaller::with_caps(0))).unwrap().add(&cx, 1, &layers[0][1], ev(IN, 0)),
        Err(Errno::ELOOP)
    );
}
