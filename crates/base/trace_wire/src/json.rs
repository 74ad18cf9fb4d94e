//! Messages as JSON, and their fields by name.
//!
//! It is the standard mapping of protocol buffers (64-bit numbers are strings), but for three things: a field that was asked for
//! is there, whatever its value is; addresses are as people write them; other bytes are hexadecimal digits. All control
//! characters are escaped, also those that JSON leaves alone: text is the guest's, and a terminal may show it.

use crate::messages::common::{ContextData, SocketIp};
use crate::points::{ContextFields, OptionalFields};
use protobuf::reflect::{FieldDescriptor, MessageDescriptor, ReflectFieldRef, ReflectValueRef};
use protobuf::reflect::{RuntimeFieldType, RuntimeType};
use protobuf::{MessageDyn, MessageFull};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The fields that a session has asked for at a point. Others that are empty are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Of the message.
    pub optional: OptionalFields,
    /// Of its context.
    pub context: ContextFields,
}

impl Asked {
    /// All of them.
    pub const ALL: Asked = Asked { optional: OptionalFields::all(), context: ContextFields::all() };

    /// Whether a field was asked for, one of the context or another one.
    fn has(&self, of_context: bool, name: &str) -> bool {
        match of_context {
            true => context_field(name).is_none_or(|field| self.context.contains(field)),
            false => optional_field(name).is_none_or(|field| self.optional.contains(field)),
        }
    }
}

/// What a session asks for to get a field of the context.
fn context_field(name: &str) -> Option<ContextFields> {
    use ContextFields as C;
    Some(match name {
        "time_ns" => C::TIME,
        "thread_id" => C::THREAD_ID,
        "thread_start_time_ns" => C::TASK_START_TIME,
        "thread_group_id" => C::GROUP_ID,
        "thread_group_start_time_ns" => C::THREAD_GROUP_START_TIME,
        name => return C::named(name),
    })
}

/// What a session asks for to get a field of a message, if it is not always there.
fn optional_field(name: &str) -> Option<OptionalFields> {
    use OptionalFields as O;
    Some(match name {
        "binary_mode"
        | "binary_uid"
        | "binary_gid"
        | "binary_ino"
        | "binary_size"
        | "binary_nlink"
        | "binary_overlayfs_upper"
        | "binary_overlayfs_lower"
        | "binary_in_memfd" => O::BINARY_INFO,
        name => return O::named(name),
    })
}

/// A message as JSON, in the order of its fields.
pub fn to_json(message: &dyn MessageDyn, asked: &Asked) -> String {
    let mut out = String::new();
    write_message(&mut out, message, asked);
    out
}

fn write_message(out: &mut String, message: &dyn MessageDyn, asked: &Asked) {
    let descriptor = message.descriptor_dyn();
    let of_context = descriptor == ContextData::descriptor();
    let mut separator = "";
    out.push('{');
    let mut name = |out: &mut String, field: &FieldDescriptor| {
        let _ = write!(out, "{separator}\"{}\": ", field.name());
        separator = ", ";
    };
    for field in descriptor.fields() {
        let wanted = asked.has(of_context, field.name());
        match field.get_reflect(message) {
            ReflectFieldRef::Optional(value) => {
                if let Some(value) = value.value() {
                    name(out, &field);
                    write_value(out, &field, &value, asked);
                } else if wanted && message_type(&field).is_none() {
                    name(out, &field);
                    write_value(out, &field, &field.get_singular_field_or_default(message), asked);
                }
            }
            ReflectFieldRef::Repeated(all) if wanted || !all.is_empty() => {
                name(out, &field);
                out.push('[');
                for i in 0..all.len() {
                    out.push_str(if i > 0 { ", " } else { "" });
                    write_value(out, &field, &all.get(i), asked);
                }
                out.push(']');
            }
            // No message has a map.
            ReflectFieldRef::Repeated(_) | ReflectFieldRef::Map(_) => {}
        }
    }
    out.push('}');
}

fn write_value(out: &mut String, field: &FieldDescriptor, value: &ReflectValueRef<'_>, asked: &Asked) {
    // Writing to a string does not fail.
    let _ = match value {
        ReflectValueRef::U32(number) => write!(out, "{number}"),
        ReflectValueRef::I32(number) | ReflectValueRef::Enum(_, number) => write!(out, "{number}"),
        ReflectValueRef::U64(number) => write!(out, "\"{number}\""),
        ReflectValueRef::I64(number) => write!(out, "\"{number}\""),
        ReflectValueRef::F32(number) => write!(out, "{number}"),
        ReflectValueRef::F64(number) => write!(out, "{number}"),
        ReflectValueRef::Bool(value) => write!(out, "{value}"),
        ReflectValueRef::String(text) => {
            write_text(out, text);
            Ok(())
        }
        ReflectValueRef::Bytes(bytes) => {
            write_text(out, &readable(field, bytes));
            Ok(())
        }
        ReflectValueRef::Message(message) => {
            write_message(out, &**message, asked);
            Ok(())
        }
    };
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Bytes as people write what they mean.
fn readable(field: &FieldDescriptor, bytes: &[u8]) -> String {
    let known = match field.name() {
        "address" => socket_address(bytes),
        "ip" if field.containing_message() == SocketIp::descriptor() => ip(bytes),
        _ => None,
    };
    known.unwrap_or_else(|| bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn ip(bytes: &[u8]) -> Option<String> {
    let v4 = |bytes: &[u8]| Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?).to_string());
    let v6 = |bytes: &[u8]| Some(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?).to_string());
    v4(bytes).or_else(|| v6(bytes))
}

/// A struct sockaddr as people write it; `None` for one that is cut short.
pub fn socket_address(bytes: &[u8]) -> Option<String> {
    const UNIX: u16 = 1;
    const INET: u16 = 2;
    const INET6: u16 = 10;
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    let rest = bytes.get(2..)?;
    let port = || Some(u16::from_be_bytes(*rest.first_chunk()?));
    Some(match family {
        UNIX => match rest.split_first() {
            None => "unix".into(),
            Some((0, name)) => format!("@{}", String::from_utf8_lossy(name)),
            Some(_) => {
                let path = rest.split(|b| *b == 0).next().unwrap_or_default();
                String::from_utf8_lossy(path).into_owned()
            }
        },
        INET => format!("{}:{}", Ipv4Addr::from(*rest.get(2..)?.first_chunk::<4>()?), port()?),
        INET6 => format!("[{}]:{}", Ipv6Addr::from(*rest.get(6..)?.first_chunk::<16>()?), port()?),
        other => format!("family {other}"),
    })
}

/// The message in a field, if it has one.
fn message_type(field: &FieldDescriptor) -> Option<MessageDescriptor> {
    match field.runtime_field_type() {
        RuntimeFieldType::Singular(RuntimeType::Message(message)) => Some(message),
        _ => None,
    }
}

/// Whether a message has a field of this name, each part in the message of the one before.
pub fn has_field<'a>(message: &MessageDescriptor, path: impl IntoIterator<Item = &'a str>) -> bool {
    let mut at = Some(message.clone());
    for name in path {
        let Some(field) = at.and_then(|message| message.field_by_name(name)) else { return false };
        at = message_type(&field);
    }
    // A message within has fields, and no value.
    at.is_none()
}

/// The names of a message's fields, with dots for those of messages within; those of the context are the same in all, and are
/// [`context_fields`].
pub fn fields(message: &MessageDescriptor) -> Vec<String> {
    let mut names = Vec::new();
    for field in message.fields() {
        match message_type(&field) {
            Some(within) if within == ContextData::descriptor() => {}
            Some(within) => {
                names.extend(fields(&within).into_iter().map(|name| format!("{}.{name}", field.name())));
            }
            None => names.push(field.name().into()),
        }
    }
    names
}

/// The names of the context's fields.
pub fn context_fields() -> Vec<String> {
    fields(&ContextData::descriptor())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::common::Credentials;
    use crate::messages::sentry::ExecveInfo;
    use crate::messages::syscall::{Connect, Exit, Open, Setid};

    #[test]
    fn what_was_asked_for_is_there() {
        let mut setid = Setid::new();
        setid.sysno = 105;
        let none = Asked::default();
        assert_eq!(to_json(&setid, &none), r#"{"sysno": "105", "id": 0}"#);
        let mut context = ContextData::new();
        context.credentials = Some(Credentials::new()).into();
        setid.context_data = Some(context).into();
        setid.exit = Some(Exit::new()).into();
        let asked = Asked { context: ContextFields::CREDENTIALS | ContextFields::THREAD_ID, ..none };
        let json = to_json(&setid, &asked);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["context_data"]["credentials"]["effective_uid"], 0);
        assert_eq!(value["context_data"]["thread_id"], 0);
        assert!(value["context_data"].get("cwd").is_none() && value["context_data"].get("time_ns").is_none());
        assert_eq!(value["exit"], serde_json::json!({ "result": "0", "errorno": "0" }));
        let info = ExecveInfo::new();
        assert_eq!(to_json(&info, &none), r#"{"binary_path": "", "argv": [], "execfn": ""}"#);
        let asked = Asked { optional: OptionalFields::ENV | OptionalFields::BINARY_INFO, ..none };
        let json = to_json(&info, &asked);
        assert!(json.contains(r#""env": []"#) && json.contains(r#""binary_uid": 0"#), "{json}");
        assert!(!json.contains("sha256") && !json.contains("stdin"), "{json}");
    }

    #[test]
    fn optional_fields_are_fields() {
        for name in ContextFields::all().names() {
            let fields = context_fields();
            let of = |field: &String| {
                context_field(field.split('.').next().unwrap_or_default()) == ContextFields::named(&name)
            };
            assert!(fields.iter().any(of), "{name}: {fields:?}");
        }
    }

    #[test]
    fn addresses_are_readable() {
        let v4 = [2, 0, 0, 80, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(socket_address(&v4).as_deref(), Some("127.0.0.1:80"));
        let mut v6 = vec![10, 0, 1, 187, 0, 0, 0, 0];
        v6.extend_from_slice(&Ipv6Addr::LOCALHOST.octets());
        assert_eq!(socket_address(&v6).as_deref(), Some("[::1]:443"));
        assert_eq!(socket_address(b"\x01\0/run/x\0junk").as_deref(), Some("/run/x"));
        assert_eq!(socket_address(b"\x01\0\0name").as_deref(), Some("@name"));
        assert_eq!(socket_address(b"\x10\0").as_deref(), Some("family 16"));
        assert_eq!(socket_address(b"\x02\0\0"), None);
        let mut connect = Connect::new();
        connect.address = v4.to_vec();
        assert!(to_json(&connect, &Asked::ALL).contains(r#""address": "127.0.0.1:80""#));
        connect.address = vec![2, 0, 255];
        assert!(to_json(&connect, &Asked::ALL).contains(r#""address": "0200ff""#));
        let mut info = ExecveInfo::new();
        info.binary_sha256 = vec![1, 0xab];
        assert!(to_json(&info, &Asked::default()).contains(r#""binary_sha256": "01ab""#));
    }

    #[test]
    fn text_steers_no_terminal() {
        let mut open = Open::new();
        // U+009B is the beginning of a sequence that steers a terminal.
        open.pathname = "a\u{9b}2J\x1b\x7f\n\u{e4}\"\\".into();
        let json = to_json(&open, &Asked::default());
        assert!(!json.contains(char::is_control), "{json:?}");
        let back: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(back["pathname"], open.pathname);
    }

    #[test]
    fn fields_have_paths() {
        let connect = Connect::descriptor();
        let has = |path: &str| has_field(&connect, path.split('.'));
        assert!(has("address") && has("exit.errorno") && has("context_data.credentials.real_uid"));
        assert!(!has("addres") && !has("exit") && !has("address.x") && !has("exit.nothing"));
        assert_eq!(fields(&connect), ["exit.result", "exit.errorno", "sysno", "fd", "fd_path", "address"]);
        assert!(context_fields().contains(&"credentials.saved_gid".to_string()));
    }
}
