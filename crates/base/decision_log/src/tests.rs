//! Logs that are whole, and all kinds of changes to them.

use crate::*;

fn key() -> Key {
    Key::from_seed(&[7; 32])
}

fn entry(path: &str) -> Entry {
    Entry {
        time_ns: 5,
        point: "file/open".into(),
        path: Some(path.into()),
        action: "deny".into(),
        errno: Some("EACCES".into()),
        rule: Some(1),
        ..Entry::default()
    }
}

fn started() -> Writer<Vec<u8>> {
    Writer::start(Vec::new(), Start::new("box", b"rules: []", 1)).unwrap()
}

fn log() -> Vec<u8> {
    let mut writer = started();
    for path in ["/etc/shadow", "/a\nb", "/c"] {
        writer.append(&entry(path)).unwrap();
    }
    writer.finish(9, Some(&key())).unwrap()
}

fn lines(log: &[u8]) -> Vec<Vec<u8>> {
    log.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

fn fault(log: &[u8]) -> Fault {
    verify(log, Some(&key().public())).unwrap_err()
}

#[test]
fn a_whole_log() {
    let log = log();
    assert_eq!(lines(&log).len(), 5);
    let report = verify(&log[..], Some(&key().public())).unwrap();
    assert_eq!((report.lines, report.decisions, report.resumed), (5, 3, 0));
    assert_eq!(report.start, Start::new("box", b"rules: []", 1));
    assert_eq!(report.signature, Signature::Good(key().public().id()));
    assert_eq!(verify(&log[..], None).unwrap().signature, Signature::Unchecked(key().public().id()));
    let unsigned = started().finish(2, None).unwrap();
    assert_eq!(verify(&unsigned[..], None).unwrap().signature, Signature::Missing);
    assert!(matches!(fault(&unsigned), Fault::Unsigned));
}

#[test]
fn every_flipped_bit_is_found() {
    let log = log();
    for at in 0..log.len() {
        for bit in 0..8 {
            let mut changed = log.clone();
            changed[at] ^= 1 << bit;
            let fault = fault(&changed);
            let line = log[..at].iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
            let found = fault.line();
            // The chain shows a change in the line, or in the line behind it.
            assert!(found.is_none_or(|found| found == line || found == line + 1), "{at} {bit}: {fault}");
        }
    }
}

#[test]
fn lines_that_are_dropped_swapped_added_or_repeated() {
    let log = log();
    let all = lines(&log);
    for at in 0..all.len() {
        let mut dropped = all.clone();
        dropped.remove(at);
        let fault = fault(&dropped.concat());
        match at {
            4 => assert!(matches!(fault, Fault::CutOff { lines: 4 }), "{fault}"),
            _ => assert_eq!(fault.line(), Some(at as u64 + 1), "{fault}"),
        }
        let mut repeated = all.clone();
        repeated.insert(at, all[at].clone());
        assert_eq!(self::fault(&repeated.concat()).line(), Some(at as u64 + 2));
        if at > 0 {
            let mut swapped = all.clone();
            swapped.swap(at - 1, at);
            assert_eq!(self::fault(&swapped.concat()).line(), Some(at as u64));
        }
    }
    let behind = [&log[..], &all[1]].concat();
    assert!(matches!(fault(&behind), Fault::BehindEnd { line: 6 }));
    assert!(matches!(fault(&[&log[..], b"x"].concat()), Fault::BehindEnd { line: 6 }));
}

#[test]
fn every_shorter_log_is_found() {
    let log = log();
    for end in 0..log.len() {
        let fault = fault(&log[..end]);
        assert!(matches!(fault, Fault::CutOff { .. } | Fault::Malformed { .. }), "{end}: {fault}");
    }
}

#[test]
fn a_chain_that_was_made_anew() {
    let other = Key::from_seed(&[8; 32]);
    let forged = started().finish(9, Some(&other)).unwrap();
    assert!(matches!(fault(&forged), Fault::OtherKey { .. }));
    let text = String::from_utf8(forged).unwrap().replace(&other.public().id(), &key().public().id());
    assert!(matches!(fault(text.as_bytes()), Fault::BadSignature { line: 2 }));
}

#[test]
fn a_writer_that_was_killed_at_any_byte() {
    let mut writer = started();
    writer.append(&entry("/a")).unwrap();
    writer.append(&entry("/b")).unwrap();
    let open = lines(&writer.finish(1, None).unwrap())[..3].concat();
    let first = lines(&open)[0].len() - 1;
    for end in first..=open.len() {
        let mut log = open[..end].to_vec();
        let tail = Tail::read(&log[..]).unwrap();
        let mut writer = Writer::resume(&mut log, &tail, 3).unwrap();
        writer.append(&entry("/c")).unwrap();
        writer.finish(4, Some(&key())).unwrap();
        let report = verify(&log[..], Some(&key().public())).unwrap_or_else(|fault| panic!("{end}: {fault}"));
        assert_eq!(report.resumed, 1);
        let whole =
            lines(&open[..end]).iter().filter(|line| line.ends_with(b"}\n") || line.ends_with(b"}}")).count();
        assert_eq!(report.decisions, whole as u64, "{end}");
    }
    assert!(matches!(Tail::read(&log()[..]), Err(Fault::Ended)));
    assert!(Tail::read(&open[..first - 1]).is_err() && Tail::read(&b""[..]).is_err());
}

#[test]
fn an_incomplete_line_needs_its_reason() {
    let mut log = started().finish(1, None).unwrap();
    log.truncate(lines(&log)[0].len());
    log.extend_from_slice(b"{\"number\":1,");
    let tail = Tail::read(&log[..]).unwrap();
    Writer::resume(&mut log, &tail, 3).unwrap().finish(4, Some(&key())).unwrap();
    assert!(verify(&log[..], Some(&key().public())).is_ok());
    let lied = String::from_utf8(log).unwrap().replace("\"incomplete\":true", "\"incomplete\":false");
    assert_eq!(fault(lied.as_bytes()).line(), Some(2));
}

#[test]
fn keys_have_the_forms_of_openssl() {
    let pem = key().to_pem().unwrap();
    assert!(pem.starts_with("-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEI"), "{pem}");
    let again = Key::from_pem(&pem).unwrap();
    let public = again.public().to_pem().unwrap();
    assert_eq!(PublicKey::from_pem(&public).unwrap(), key().public());
    assert!(PublicKey::from_pem(&pem).unwrap_err().contains("-pubout"));
    assert!(Key::from_pem(&public).is_err() && Key::from_pem("x").is_err());
}

#[test]
fn bytes_as_text() {
    assert_eq!(text_of("/é\\\n".as_bytes()), "/é\\x5c\n");
    assert_eq!(text_of(b"/\xff"), "/\\xff");
}
