use crate::*;

fn meta(mode: u32) -> Meta {
    Meta { mode, uid: 1, gid: 2, rdev: 0, size: 0, atime: (-5, 999_999_999), mtime: (7, 0) }
}

fn node(name: &[u8], state: State, mode: u32) -> Node<'_> {
    Node { name, state, hides: false, id: 0, meta: meta(mode), target: b"" }
}

fn stream(records: &[Record<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    for record in records {
        writer.write(record).unwrap();
    }
    writer.flush().unwrap();
    bytes
}

/// How many records are accepted, and why no more are.
fn read(bytes: &[u8], expected: &[Record<'_>]) -> (usize, String) {
    let mut reader = Reader::new(bytes);
    for (count, expected) in expected.iter().enumerate() {
        match reader.next_record() {
            Ok(record) => assert_eq!(record, *expected),
            Err(error) => return (count, error.to_string()),
        }
    }
    (expected.len(), reader.next_record().unwrap_err().to_string())
}

fn refused(records: &[Record<'_>]) -> String {
    let (count, why) = read(&stream(records), records);
    assert_eq!(count, records.len() - 1, "{why}");
    why
}

const DIR: u32 = 0o040755;
const FILE: u32 = 0o100644;

#[test]
fn what_is_written_is_read() {
    let file = Node { id: 9, meta: Meta { size: 10, ..meta(FILE) }, ..node(b"f", State::New, FILE) };
    let link = Node { target: b"../x", ..node(b"l", State::New, 0o120777) };
    let hides = Node { hides: true, ..node(b"d", State::New, DIR) };
    let all = [
        Record::Node(node(b"", State::Kept, DIR)),
        Record::Node(hides),
        Record::Xattr { name: b"user.a", value: b"" },
        Record::Node(file),
        Record::Xattr { name: b"user.a", value: b"b" },
        Record::Data { offset: 0, bytes: b"abc" },
        Record::Data { offset: 9, bytes: b"z" },
        Record::Node(link),
        Record::Up,
        Record::Omitted { count: 3 },
        Record::Removed { name: b"gone" },
        Record::Node(Node { id: 9, ..node(b"g", State::Link, FILE) }),
        Record::Node(node(b"same", State::Rewritten { shared: true }, FILE)),
        Record::Node(node(b"null", State::Changed, 0o020666)),
        Record::End,
    ];
    let bytes = stream(&all);
    assert_eq!(read(&bytes, &all), (all.len(), "changes of an overlay: more than there may be".into()));
    // A stream that is cut anywhere has no end.
    for cut in 0..bytes.len() {
        let (count, why) = read(&bytes[..cut], &all);
        assert!(count < all.len() && why.contains("fill whole buffer"), "{cut}: {why}");
    }
}

#[test]
fn names_are_single_components() {
    let root = Record::Node(node(b"", State::Kept, DIR));
    let long = [b'a'; 256];
    for name in [&b"a/b"[..], b"..", b".", b"a\0", b"/", &long] {
        for record in [Record::Node(node(name, State::New, FILE)), Record::Removed { name }] {
            assert!(refused(&[root, record]).contains("not a record"), "{name:?}");
        }
    }
    assert!(refused(&[root, Record::Node(node(b"", State::New, FILE))]).contains("without a name"));
    assert!(refused(&[root, Record::Removed { name: b"" }]).contains("not a record"));
    let target = Node { target: b"a\0", ..node(b"l", State::New, 0o120777) };
    assert!(refused(&[root, Record::Node(target)]).contains("not a record"));
    assert!(refused(&[Record::Node(node(b"a", State::Kept, DIR))]).contains("no root"));
}

#[test]
fn everything_has_its_place() {
    let root = Record::Node(node(b"", State::Kept, DIR));
    let file = Record::Node(Node { meta: Meta { size: 2, ..meta(FILE) }, ..node(b"f", State::New, FILE) });
    let data = |offset, bytes| Record::Data { offset, bytes };
    let attribute = Record::Xattr { name: b"user.a", value: b"b" };
    assert!(refused(&[root, Record::Up]).contains("up from the root"));
    assert!(refused(&[root, Record::Removed { name: b"x" }, attribute]).contains("attribute of nothing"));
    assert!(refused(&[root, data(0, b"a")]).contains("content of nothing"));
    assert!(refused(&[root, file, data(1, b"ab")]).contains("wrong place"));
    assert!(refused(&[root, file, data(u64::MAX, b"ab")]).contains("wrong place"));
    assert!(refused(&[root, file, data(1, b"a"), data(1, b"a")]).contains("wrong place"));
    assert!(refused(&[root, file, data(0, b"a"), attribute]).contains("attribute of nothing"));
    let changed = Record::Node(node(b"c", State::Changed, FILE));
    assert!(refused(&[root, changed, data(0, b"a")]).contains("wrong place"));
    let new = Record::Node(node(b"d", State::New, DIR));
    assert!(refused(&[root, new, changed]).contains("wrong place"));
    assert!(refused(&[root, new, Record::Removed { name: b"x" }]).contains("what is new"));
    assert!(refused(&[root, new, Record::End]).contains("in the middle"));
    let twice = Record::Node(Node { id: 4, ..node(b"t", State::New, FILE) });
    assert!(refused(&[root, twice, twice]).contains("two objects"));
    let link = |mode| Record::Node(Node { id: 4, ..node(b"t", State::Link, mode) });
    assert!(refused(&[root, link(FILE)]).contains("link to nothing"));
    assert!(refused(&[root, twice, link(0o120777)]).contains("not a record"));
    assert!(refused(&[root, twice, link(0o010644)]).contains("link to nothing"));
    assert!(refused(&[root, Record::Node(node(b"f", State::Kept, FILE))]).contains("not a record"));
    for owner in [Meta { uid: u32::MAX, ..meta(FILE) }, Meta { gid: u32::MAX, ..meta(FILE) }] {
        let nobody = Node { meta: owner, ..node(b"f", State::New, FILE) };
        assert!(refused(&[root, Record::Node(nobody)]).contains("not a record"));
    }
}

#[test]
fn everything_is_bounded() {
    let root = Record::Node(node(b"", State::Kept, DIR));
    let mut deep = vec![root];
    deep.extend((0..DEPTH_MAX).map(|_| Record::Node(node(b"d", State::New, DIR))));
    assert!(refused(&deep).contains("below each other"));
    let value = vec![0; VALUE_MAX];
    let mut many = vec![root, Record::Node(node(b"d", State::New, DIR))];
    many.extend((0..XATTRS_MAX / VALUE_MAX).map(|_| Record::Xattr { name: b"user.a", value: &value }));
    assert!(refused(&many).contains("too many extended attributes"));
    let bytes = stream(&[root, Record::Up]);
    let mut reader = Reader::new(&bytes[..]);
    for _ in 0..3 {
        assert_eq!(reader.next_record().unwrap(), root);
        reader.put_back();
    }
    assert_eq!(reader.next_record().unwrap(), root);
    assert!(reader.next_record().is_err());
    let mut bytes = stream(&[root]);
    bytes.extend(u32::MAX.to_le_bytes());
    assert_eq!(read(&bytes, &[root]), (1, "changes of an overlay: length of a record".into()));
}
