use crate::{Change, Omissions, list, pack};
use changes::{Meta, Node, Record, State, Writer};
use std::io::Read;

fn node(name: &[u8], state: State, mode: u32) -> Node<'_> {
    let meta = Meta { mode, uid: 5, gid: 6, mtime: (7, 8), ..Meta::default() };
    Node { name, state, hides: false, id: 0, meta, target: b"" }
}

fn stream(records: &[Record<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    records.iter().for_each(|record| writer.write(record).unwrap());
    bytes
}

fn sample() -> Vec<u8> {
    let file = node(b"f", State::New, 0o100640);
    let sized = |node: Node<'static>, size| Node { meta: Meta { size, ..node.meta }, ..node };
    let device = node(b"null", State::New, 0o020666);
    stream(&[
        Record::Node(node(b"", State::Kept, 0o040755)),
        Record::Node(node(b"etc", State::Kept, 0o040755)),
        Record::Removed { name: b"gone" },
        Record::Node(Node { id: 3, ..sized(file, 9) }),
        Record::Xattr { name: b"user.x", value: b"\0v" },
        Record::Xattr { name: b"user.fuseoverlayfs.opaque", value: b"y" },
        Record::Data { offset: 2, bytes: b"abc" },
        Record::Data { offset: 6, bytes: b"d" },
        Record::Node(Node { hides: true, ..node(b"dir", State::New, 0o041777) }),
        Record::Node(Node { target: b"../f", ..node(b"l", State::New, 0o120777) }),
        Record::Up,
        Record::Up,
        Record::Node(Node { id: 3, ..node(b"g", State::Link, 0o100640) }),
        Record::Node(node(b"sock", State::New, 0o140777)),
        Record::Node(node(b".wh.x", State::New, 0o100644)),
        Record::Node(node(b".wh.d", State::New, 0o040755)),
        Record::Node(node(b"d", State::New, 0o040755)),
        Record::Node(node(b"below", State::New, 0o100644)),
        Record::Up,
        Record::Up,
        Record::Node(Node { meta: Meta { rdev: 1 << 32, ..device.meta }, ..device }),
        Record::Omitted { count: 2 },
        Record::End,
    ])
}

#[test]
fn names_are_listed() {
    let mut lines = Vec::new();
    let mut tell = |change: Change, path: &[u8]| {
        lines.push(format!("{} {}", change.letter(), String::from_utf8_lossy(path)));
        Ok(())
    };
    list(&sample()[..], &mut tell).unwrap();
    let expected = [
        "C /etc",
        "D /etc/gone",
        "A /etc/f",
        "C /etc/dir",
        "A /etc/dir/l",
        "A /g",
        "A /sock",
        "A /.wh.x",
        "A /.wh.d",
        "A /.wh.d/d",
        "A /.wh.d/d/below",
        "A /null",
    ];
    assert_eq!(lines, expected);
    let cut = &sample()[..100];
    assert!(list(cut, &mut |_, _| Ok(())).is_err());
}

#[test]
fn a_layer_is_packed() {
    let mut bytes = Vec::new();
    let left = pack(&sample()[..], &mut bytes).unwrap();
    assert_eq!(left, Omissions { sockets: 1, whiteouts: 5, xattrs: 1, omitted: 2 });
    let mut archive = tar::Archive::new(&bytes[..]);
    let mut names = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
        if name == "etc/f" {
            let extensions = entry.pax_extensions().unwrap().unwrap();
            let pairs: Vec<_> = extensions
                .map(|e| e.unwrap())
                .map(|e| (e.key().unwrap().to_string(), e.value_bytes().to_vec()))
                .collect();
            assert_eq!(pairs[0], ("SCHILY.xattr.user.x".into(), b"\0v".to_vec()));
            assert_eq!(pairs[1], ("mtime".into(), b"7.000000008".to_vec()));
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            assert_eq!(content, b"\0\0abc\0d\0\0");
            assert_eq!(entry.header().mode().unwrap(), 0o640);
            assert_eq!((entry.header().uid().unwrap(), entry.header().gid().unwrap()), (5, 6));
        }
        let link = entry.link_name_bytes().map(|link| String::from_utf8(link.into_owned()).unwrap());
        names.push(name + &link.map_or(String::new(), |link| format!(" -> {link}")));
    }
    let expected = [
        "etc/",
        "etc/.wh.gone",
        "etc/f",
        "etc/dir/",
        "etc/dir/.wh..wh..opq",
        "etc/dir/l -> ../f",
        "g -> etc/f",
    ];
    assert_eq!(names, expected);
}
