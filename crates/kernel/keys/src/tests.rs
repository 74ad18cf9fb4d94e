//! The rules without a kernel around them.

use crate::{Holder, Keys, Kind, Setting, Subject};
use abi::Errno;
use rights::{Cap, Credentials};
use std::sync::Arc;
use user_ns::{Maker, UserNamespace};

const THREAD: i32 = -1;
const PROCESS: i32 = -2;
const SESSION: i32 = -3;

struct World {
    keys: Arc<Keys>,
    root: Credentials,
    user: Credentials,
}

fn world() -> World {
    let ns = UserNamespace::initial();
    let root = Credentials::root(&ns, Cap::ALL);
    let mut user = Credentials::root(&ns, 0);
    (user.uid, user.euid, user.suid, user.fsuid) = (1000, 1000, 1000, 1000);
    World { keys: Keys::new(ktime::Clock::default()), root, user }
}

fn text(s: &str) -> Option<Vec<u8>> {
    Some(s.as_bytes().to_vec())
}

#[test]
fn what_nothing_refers_to_goes() {
    let w = world();
    let holder = Holder::new(&w.keys);
    let subject = Subject::new(&w.user, &holder);
    let ring = w.keys.add(&subject, Some(Kind::Keyring), text("r"), vec![], PROCESS).unwrap();
    let key = w.keys.add(&subject, Some(Kind::User), text("k"), vec![1], ring).unwrap();
    assert_eq!(w.keys.read(&subject, key).unwrap(), [1]);
    let before = w.keys.store.lock().totals.bytes;
    assert!(before > 0);
    drop(holder);
    let store = w.keys.store.lock();
    assert!(store.keys.is_empty() && store.users.is_empty() && store.rings.is_empty());
    assert_eq!((store.totals.bytes, store.totals.links), (0, 0));
}

#[test]
fn quotas_hold_and_come_back() {
    let w = world();
    let holder = Holder::new(&w.keys);
    let subject = Subject::new(&w.user, &holder);
    w.keys.set(Setting::MaxKeys, 3);
    let add = |name: &str| w.keys.add(&subject, Some(Kind::User), text(name), vec![0; 10], PROCESS);
    let first = add("a").unwrap();
    add("b").unwrap();
    assert_eq!(add("c"), Err(Errno::EDQUOT));
    w.keys.unlink(&subject, first, PROCESS).unwrap();
    add("c").unwrap();
    w.keys.set(Setting::MaxBytes, 60);
    assert_eq!(w.keys.update(&subject, add("b").unwrap(), vec![0; 60]), Err(Errno::EDQUOT));
}

#[test]
fn users_without_keys_are_forgotten() {
    let w = world();
    let holder = Holder::new(&w.keys);
    let subject = Subject::new(&w.root, &holder);
    let ring = w.keys.id(&subject, THREAD, true).unwrap();
    for uid in 0..1000 {
        holder.user_changed(uid);
    }
    let owners = |w: &World| w.keys.store.lock().users.keys().map(|o| o.1).collect::<Vec<_>>();
    assert_eq!(owners(&w), [999]);
    for uid in 0..1000 {
        w.keys.chown(&subject, ring, Some(uid), None).unwrap();
    }
    assert_eq!(owners(&w), [999]);
    drop(holder);
    assert!(owners(&w).is_empty());
}

#[test]
fn links_share_the_description_of_their_key() {
    let w = world();
    let holder = Holder::new(&w.keys);
    let subject = Subject::new(&w.root, &holder);
    let make = |kind, name: &str, ring| {
        let payload = if kind == Kind::User { vec![1] } else { vec![] };
        w.keys.add(&subject, Some(kind), text(name), payload, ring).unwrap()
    };
    let rings: Vec<_> = (0..10).map(|n| make(Kind::Keyring, &format!("r{n}"), PROCESS)).collect();
    // A key of the same name that comes later takes the place of the first one.
    let old = make(Kind::Keyring, "name", rings[0]);
    for ring in &rings {
        w.keys.link(&subject, old, *ring).unwrap();
    }
    let new = make(Kind::Keyring, "name", PROCESS);
    assert_ne!(old, new);
    for ring in &rings {
        w.keys.link(&subject, new, *ring).unwrap();
    }
    let store = w.keys.store.lock();
    assert!(store.key(old).is_err());
    let own = &store.key(new).unwrap().description;
    for ring in &rings {
        let links = store.key(*ring).unwrap().links().unwrap();
        let ((_, linked), serial) = links.iter().next().unwrap();
        assert!(*serial == new && Arc::ptr_eq(linked, own));
    }
}

#[test]
fn keyrings_do_not_contain_themselves() {
    let w = world();
    let holder = Holder::new(&w.keys);
    let subject = Subject::new(&w.root, &holder);
    let ring =
        |name: &str, to: i32| w.keys.add(&subject, Some(Kind::Keyring), text(name), vec![], to).unwrap();
    let a = ring("a", PROCESS);
    let b = ring("b", a);
    let c = ring("c", b);
    assert_eq!(w.keys.link(&subject, a, c), Err(Errno::EDEADLK));
    assert_eq!(w.keys.link(&subject, a, a), Err(Errno::EDEADLK));
    let deep: Vec<_> = (0..9).map(|n| ring(&format!("deep{n}"), PROCESS)).collect();
    for pair in deep.windows(2) {
        w.keys.link(&subject, pair[1], pair[0]).unwrap();
    }
    let (top, other) = (deep[0], ring("other", THREAD));
    assert_eq!(w.keys.link(&subject, top, other), Err(Errno::ELOOP));
}

#[test]
fn others_neither_see_nor_find_a_key() {
    let w = world();
    let (mine, yours) = (Holder::new(&w.keys), Holder::new(&w.keys));
    let key = {
        let subject = Subject::new(&w.root, &mine);
        w.keys.add(&subject, Some(Kind::User), text("secret"), vec![1, 2], SESSION).unwrap()
    };
    let subject = Subject::new(&w.user, &yours);
    assert_eq!(w.keys.read(&subject, key), Err(Errno::EACCES));
    assert_eq!(w.keys.describe(&subject, key), Err(Errno::EACCES));
    assert_eq!(w.keys.link(&subject, key, PROCESS), Err(Errno::EACCES));
    assert!(!String::from_utf8(w.keys.list(&subject)).unwrap().contains("secret"));
    // Neither does the same user of another user namespace.
    let inner = Credentials::root(
        &w.root.user_ns.child(7, Maker { user: 0, group: 0, setfcap: true }).unwrap(),
        Cap::ALL,
    );
    assert_eq!(w.keys.describe(&Subject::new(&inner, &yours), key), Err(Errno::EACCES));
}

#[test]
fn clone_and_exec_share_what_they_should() {
    let w = world();
    let holder = Holder::new(&w.keys);
    let subject = Subject::new(&w.user, &holder);
    let session = w.keys.join_session(&subject, None).unwrap();
    let process = w.keys.id(&subject, PROCESS, true).unwrap();
    let own = w.keys.id(&subject, THREAD, true).unwrap();
    let thread = holder.inherited(&w.user, true);
    let child = holder.inherited(&w.user, false);
    let id = |h: &Holder, which: i32| w.keys.id(&Subject::new(&w.user, h), which, false);
    assert_eq!((id(&thread, SESSION), id(&thread, PROCESS)), (Ok(session), Ok(process)));
    assert_ne!(id(&thread, THREAD), Ok(own));
    assert_eq!((id(&child, SESSION), id(&child, PROCESS)), (Ok(session), Err(Errno::ENOKEY)));
    holder.exec();
    assert_eq!((id(&holder, SESSION), id(&holder, THREAD)), (Ok(session), Err(Errno::ENOKEY)));
    drop((holder, thread, child));
    let store = w.keys.store.lock();
    // The user's keyrings stay, if they were made.
    assert!(store.keys.values().all(|k| k.of_user));
}

#[test]
fn what_is_not_there_is_negated_once() {
    let w = world();
    let holder = Holder::new(&w.keys);
    let subject = Subject::new(&w.user, &holder);
    let ask = |make| w.keys.request(&subject, Some(Kind::User), b"x".to_vec(), make, 0);
    assert_eq!(ask(false), Err(Errno::ENOKEY));
    assert_eq!(ask(true), Err(Errno::ENOKEY));
    let count = w.keys.store.lock().keys.len();
    assert_eq!(ask(true), Err(Errno::ENOKEY));
    assert_eq!(w.keys.store.lock().keys.len(), count);
}

#[test]
fn state_and_back() {
    let w = world();
    let holder = Holder::new(&w.keys);
    let subject = Subject::new(&w.user, &holder);
    let ring = w.keys.add(&subject, Some(Kind::Keyring), text("r"), vec![], SESSION).unwrap();
    let key = w.keys.add(&subject, Some(Kind::User), text("k"), vec![1, 2], ring).unwrap();
    w.keys.add(&subject, Some(Kind::BigKey), text("b"), vec![3; 5000], PROCESS).unwrap();
    w.keys.set(Setting::MaxKeys, 77);
    let (saved, held) = (w.keys.state(), holder.state().unwrap());

    let keys = Keys::new(ktime::Clock::default());
    keys.restore(&saved, &Some).unwrap();
    let again = Holder::restore(&keys, &held).unwrap();
    keys.settle();
    assert_eq!((keys.state(), again.state()), (saved.clone(), Some(held)));
    let totals = |keys: &Keys| {
        let totals = keys.store.lock().totals;
        (totals.bytes, totals.links)
    };
    assert_eq!(totals(&keys), totals(&w.keys));
    let subject = Subject::new(&w.user, &again);
    assert_eq!(keys.read(&subject, key).unwrap(), [1, 2]);
    drop(again);
    keys.settle();
    let left = (keys.count(), totals(&keys));
    drop(holder);
    assert_eq!(left, (w.keys.count(), totals(&w.keys)));

    let restored = |saved: &crate::KeysState| Keys::new(ktime::Clock::default()).restore(saved, &Some);
    assert_eq!(restored(&saved), Ok(()));
    assert_eq!(Keys::new(ktime::Clock::default()).restore(&saved, &|_| None), Err(Errno::EINVAL));
    assert!(Holder::restore(&Keys::new(ktime::Clock::default()), &held).is_err());
    for bad in crate::state::hostile(&saved) {
        assert_eq!(restored(&bad), Err(Errno::EINVAL), "{bad:?}");
    }
}
