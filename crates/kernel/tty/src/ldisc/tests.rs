use super::*;

fn typed(l: &mut Ldisc, s: &[u8]) -> Effects {
    let mut fx = Effects::default();
    s.iter().for_each(|&b| l.input(b, &mut fx));
    fx
}

fn screen(l: &mut Ldisc) -> String {
    String::from_utf8(l.out.drain(..).collect()).unwrap()
}

fn line(l: &mut Ldisc) -> String {
    let mut b = [0; 5000];
    let n = l.read(&mut b);
    String::from_utf8_lossy(&b[..n]).into_owned()
}

/// What a fresh terminal shows and delivers, as measured on Linux.
#[test]
fn canonical_editing() {
    for (keys, shown, read) in [
        ("hello\n", "hello\r\n", "hello\n"),
        ("ab\x7f\x7f\x7fc\n", "ab\x08 \x08\x08 \x08c\r\n", "c\n"),
        ("a\tb\x7f\x7fc\n", "a\tb\x08 \x08\x08\x08\x08\x08\x08\x08\x08c\r\n", "ac\n"),
        ("\x01\x7fx\n", "^A\x08 \x08\x08 \x08x\r\n", "x\n"),
        ("foo bar  \x17x\n", "foo bar  \x08 \x08\x08 \x08\x08 \x08\x08 \x08\x08 \x08x\r\n", "foo x\n"),
        ("foo\x15x\n", "foo\x08 \x08\x08 \x08\x08 \x08x\r\n", "x\n"),
        ("foo\x12x\n", "foo^R\r\nfoox\r\n", "foox\n"),
        ("a\x16\x03b\n", "a^\x08^Cb\r\n", "a\x03b\n"),
        ("a\r", "a\r\n", "a\n"),
    ] {
        let mut l = Ldisc::default();
        assert_eq!(typed(&mut l, keys.as_bytes()), Effects::default());
        assert_eq!(screen(&mut l), shown, "{keys:?}");
        assert_eq!(line(&mut l), read, "{keys:?}");
        assert!(!l.has_input(1));
    }
}

#[test]
fn end_of_file() {
    let mut l = Ldisc::default();
    typed(&mut l, b"abc\x04");
    let mut b = [0; 3];
    assert_eq!(l.read(&mut b), 3);
    assert!(!l.has_input(1));
    typed(&mut l, b"abc\x04");
    assert_eq!((l.read(&mut b[..2]), l.has_input(1), l.read(&mut b)), (2, true, 1));
    typed(&mut l, b"\x04");
    assert_eq!((l.has_input(1), l.readable(), l.read(&mut b)), (true, 0, 0));
    assert!(!l.has_input(1));
}

#[test]
fn signals_flush() {
    let mut l = Ldisc::default();
    let fx = typed(&mut l, b"some\nmore\x03");
    assert_eq!(fx, Effects { signals: vec![Signal::SIGINT], flushed: true, flow: None });
    assert_eq!(screen(&mut l), "^C");
    assert!(!l.has_input(1));
    let mut t = *l.termios();
    t.lflag |= libc::NOFLSH;
    l.set_termios(t);
    typed(&mut l, b"some\n");
    assert_eq!(typed(&mut l, b"\x1a\x1c").signals, [Signal::SIGTSTP, Signal::SIGQUIT]);
    assert_eq!(line(&mut l), "some\n");
}

#[test]
fn mode_changes_keep_input() {
    let mut l = Ldisc::default();
    let cooked = *l.termios();
    let mut raw = cooked;
    raw.lflag &= !(libc::ICANON | libc::ECHO);
    typed(&mut l, b"part");
    assert!(!l.has_input(1));
    l.set_termios(raw);
    assert_eq!(line(&mut l), "part");
    typed(&mut l, b"xyz\x04");
    assert!(l.has_input(4) && !l.has_input(5));
    l.set_termios(cooked);
    assert_eq!(line(&mut l), "xyz\x04");
}

#[test]
fn output_processing() {
    let mut l = Ldisc::default();
    assert_eq!(l.output(b"a\nb\tc\r\n", 1000), 7);
    assert_eq!(screen(&mut l), "a\r\nb\tc\r\r\n");
    let mut t = *l.termios();
    t.oflag |= libc::XTABS;
    l.set_termios(t);
    assert_eq!(l.output(b"ab\tc", 1000), 4);
    assert_eq!(screen(&mut l), "ab      c");
    t.oflag = libc::OPOST | libc::OCRNL;
    l.set_termios(t);
    l.output(b"\r\n", 1000);
    assert_eq!(screen(&mut l), "\n\n");
    assert!(l.output(&[b'x'; 100], 10) <= 10);
}

#[test]
fn flow_and_overflow() {
    let mut l = Ldisc::default();
    assert_eq!(typed(&mut l, b"\x13").flow, Some(true));
    assert!(l.stopped);
    assert_eq!(typed(&mut l, b"\x11").flow, Some(false));
    typed(&mut l, &vec![b'x'; 10_000]);
    assert!(l.has_room());
    typed(&mut l, b"\n");
    assert!(!l.has_room());
    assert_eq!(line(&mut l).len(), CAPACITY + 1);
}

fn hex(s: &str) -> Vec<u8> {
    let digits = s.trim_start_matches(['=', '-']);
    (0..digits.len() / 2).filter_map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).ok()).collect()
}

/// Random settings and input with what Linux's own terminals made of them; vectors.py recorded it.
#[test]
fn agrees_with_linux() {
    for line in include_str!("vectors.txt").lines() {
        let f: Vec<&str> = line.split(' ').collect();
        let flags = |i: usize| f[i].parse::<u32>().unwrap();
        let mut t = Termios { iflag: flags(0), oflag: flags(1), lflag: flags(3), ..Termios::default() };
        t.cc.copy_from_slice(&hex(f[4])[..19]);
        let mut l = Ldisc::default();
        l.set_termios(t);
        l.output(&hex(f[5]), 1000);
        typed(&mut l, &hex(f[6]));
        assert_eq!(Vec::from(std::mem::take(&mut l.out)), hex(f[7]), "{line}");
        let size: usize = f[8].parse().unwrap();
        for want in f[9].split(',').filter(|w| *w != "-") {
            assert!(l.has_input(1), "{line}");
            let mut b = vec![0; size];
            let n = l.read(&mut b);
            assert_eq!(b[..n], hex(want), "{line}");
        }
        assert!(!l.has_input(1), "{line}");
    }
}
