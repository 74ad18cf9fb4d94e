//! Layers, scopes and moves, with numbers for files.

use crate::{
    Domain, Handled, LandlockRestorer, LandlockSaver, LayerState, Object, Request, Ruleset, access, net,
    scope,
};
use abi::Errno;
use std::sync::Arc;

fn object(n: u64) -> Object {
    Object { key: (1, n), held: Arc::new(()) }
}

fn fs(handled: u64, rules: &[(u64, u64)]) -> Ruleset {
    let r = Ruleset::new(&Arc::default(), Handled { fs: handled, ..Handled::default() }).unwrap();
    for (n, accesses) in rules {
        r.allow_file(object(*n), *accesses).unwrap();
    }
    r
}

/// The way up from a file, its own number first.
fn ask(d: &Domain, wanted: u64, way: &[u64]) -> Result<(), Errno> {
    walk(d, wanted, way).result()
}

fn walk<'a>(d: &'a Domain, wanted: u64, way: &[u64]) -> Request<'a> {
    let mut r = Request::new(d, wanted);
    way.iter().for_each(|n| r.at((1, *n)));
    r
}

#[test]
fn every_layer_must_allow_what_it_handles() {
    let first =
        Domain::new(None, &fs(access::READ_FILE | access::WRITE_FILE, &[(5, access::READ_FILE)])).unwrap();
    assert_eq!(ask(&first, access::READ_FILE, &[9, 5, 1]), Ok(()));
    assert_eq!(ask(&first, access::WRITE_FILE, &[9, 5, 1]), Err(Errno::EACCES));
    assert_eq!(ask(&first, access::READ_FILE, &[9, 1]), Err(Errno::EACCES));
    assert_eq!(ask(&first, access::EXECUTE, &[9, 1]), Ok(()));
    let second = Domain::new(Some(&first), &fs(access::READ_FILE, &[(9, access::READ_FILE)])).unwrap();
    assert_eq!(ask(&second, access::READ_FILE, &[9, 5, 1]), Ok(()));
    assert_eq!(ask(&second, access::READ_FILE, &[8, 5, 1]), Err(Errno::EACCES));
    assert_eq!(ask(&second, access::READ_FILE, &[9, 1]), Err(Errno::EACCES));
}

#[test]
fn rules_of_several_levels_add_up() {
    let both = access::READ_FILE | access::WRITE_FILE;
    let d = Domain::new(None, &fs(both, &[(5, access::READ_FILE), (1, access::WRITE_FILE)])).unwrap();
    assert_eq!(ask(&d, both, &[5, 1]), Ok(()));
    assert_eq!(ask(&d, both, &[1]), Err(Errno::EACCES));
}

#[test]
fn what_moves_gains_nothing() {
    let all = access::READ_FILE | access::MAKE_REG | access::REMOVE_FILE | access::REFER;
    let d = Domain::new(None, &fs(all, &[(5, all), (6, all & !access::READ_FILE)])).unwrap();
    let go = |from: u64, to: u64| {
        let file = walk(&d, 0, &[99, from, 1]);
        let from = walk(&d, access::REFER | access::REMOVE_FILE, &[from, 1]);
        Request::moved(&from, &walk(&d, access::REFER | access::MAKE_REG, &[to, 1]), &file, false)
    };
    assert_eq!(go(5, 6), Ok(()));
    assert_eq!(go(6, 5), Err(Errno::EXDEV));
    assert_eq!(go(5, 7), Err(Errno::EACCES));
    // Without the right to refer nothing changes its directory, handled or not.
    let d = Domain::new(None, &fs(access::READ_FILE, &[(5, access::READ_FILE)])).unwrap();
    let r = walk(&d, access::REFER, &[5]);
    assert_eq!(Request::moved(&r, &r, &r, false), Err(Errno::EXDEV));
}

#[test]
fn ports_and_scopes() {
    let handled = Handled { net: net::ALL, scoped: scope::SIGNAL, fs: 0 };
    let r = Ruleset::new(&Arc::default(), handled).unwrap();
    r.allow_port(80, net::CONNECT_TCP).unwrap();
    let d = Domain::new(None, &r).unwrap();
    assert_eq!(d.check_port(80, net::CONNECT_TCP), Ok(()));
    assert_eq!(d.check_port(80, net::BIND_TCP), Err(Errno::EACCES));
    assert_eq!(d.check_port(81, net::CONNECT_TCP), Err(Errno::EACCES));
    let inner = Domain::new(Some(&d), &fs(access::READ_FILE, &[])).unwrap();
    assert_eq!(d.check_scope(scope::SIGNAL, None), Err(Errno::EPERM));
    assert_eq!(d.check_scope(scope::SIGNAL, Some(&inner)), Ok(()));
    assert_eq!(inner.check_scope(scope::SIGNAL, Some(&d)), Ok(()));
    assert_eq!(d.check_scope(scope::ABSTRACT_UNIX_SOCKET, None), Ok(()));
    assert!(
        d.contains(Some(&inner)) && d.contains(Some(&d)) && !inner.contains(Some(&d)) && !d.contains(None)
    );
}

#[test]
fn bounds() {
    assert_eq!(Handled { fs: 1 << 16, ..Handled::default() }.check(), Err(Errno::EINVAL));
    assert_eq!(Handled::default().check(), Err(Errno::ENOMSG));
    let r = fs(access::READ_FILE, &[]);
    let mut d = Domain::new(None, &r).unwrap();
    for _ in 1..16 {
        d = Domain::new(Some(&d), &r).unwrap();
    }
    assert_eq!(Domain::new(Some(&d), &r).err(), Some(Errno::E2BIG));
    let results: Vec<_> = (0..5000).map(|n| r.allow_file(object(n), access::READ_FILE)).collect();
    assert_eq!(results.last(), Some(&Err(Errno::E2BIG)));
}

#[test]
fn state_and_back() {
    let ruleset = fs(access::READ_FILE | access::WRITE_FILE, &[(5, access::READ_FILE)]);
    let first = Domain::new(None, &ruleset).unwrap();
    let second = Domain::new(Some(&first), &fs(access::READ_FILE, &[(9, access::READ_FILE)])).unwrap();
    let mut saver = LandlockSaver::default();
    let places = [saver.domain(&first), saver.domain(&second)];
    let open = saver.ruleset(&ruleset);
    assert_eq!((&places, open), (&[vec![0], vec![0, 1]], 2));

    // The files have other numbers by now.
    let objects: Vec<Object> = saver.objects().iter().map(|one| object(one.key.1 + 100)).collect();
    let restorer = LandlockRestorer::new(&Arc::default(), saver.layers(), &objects).unwrap();
    let [first, second] = places.map(|places| restorer.domain(&places).unwrap());
    assert_eq!(ask(&first, access::READ_FILE, &[105]), Ok(()));
    assert_eq!(ask(&first, access::READ_FILE, &[5]), Err(Errno::EACCES));
    assert_eq!(ask(&second, access::READ_FILE, &[109, 105]), Ok(()));
    assert_eq!(ask(&second, access::READ_FILE, &[105]), Err(Errno::EACCES));
    assert!(first.contains(Some(&second)) && !second.contains(Some(&first)));
    let ruleset = restorer.ruleset(open).unwrap();
    ruleset.allow_file(object(7), access::WRITE_FILE).unwrap();
    assert_eq!(ask(&Domain::new(None, &ruleset).unwrap(), access::READ_FILE, &[105]), Ok(()));

    let bad = |layer: LayerState| LandlockRestorer::new(&Arc::default(), &[layer], &objects).err();
    let good = saver.layers()[0].clone();
    assert_eq!(bad(good.clone()), None);
    assert_eq!(bad(LayerState { handled: [u64::MAX; 3], ..good.clone() }), Some(Errno::EINVAL));
    assert_eq!(bad(LayerState { handled: [0; 3], ..good.clone() }), Some(Errno::EINVAL));
    assert_eq!(bad(LayerState { files: vec![(2, 1)], ..good.clone() }), Some(Errno::EINVAL));
    assert_eq!(bad(LayerState { ports: vec![(2, 1); 5000], ..good }), Some(Errno::EINVAL));
    for places in [vec![], vec![7], vec![0; 17]] {
        assert_eq!(restorer.domain(&places).err(), Some(Errno::EINVAL));
    }
    assert!(restorer.ruleset(3).is_err());
}
