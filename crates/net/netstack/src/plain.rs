//! How a checkpoint writes types whose own way would lose something, or take too much room.

/// Bytes as a string of bytes.
pub(crate) mod bytes {
    use serde::de::{Deserializer, Error, SeqAccess, Visitor};
    use serde::ser::Serializer;
    use std::fmt;
    use std::marker::PhantomData;

    pub(crate) fn serialize<S: Serializer>(bytes: &impl AsRef<[u8]>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes.as_ref())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: From<Vec<u8>>>(from: D) -> Result<T, D::Error> {
        from.deserialize_byte_buf(Bytes(PhantomData))
    }

    struct Bytes<T>(PhantomData<T>);

    impl<'de, T: From<Vec<u8>>> Visitor<'de> for Bytes<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<T, E> {
            Ok(bytes.to_vec().into())
        }

        fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<T, E> {
            Ok(bytes.into())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<T, A::Error> {
            let mut bytes = Vec::new();
            while let Some(byte) = list.next_element()? {
                bytes.push(byte);
            }
            Ok(bytes.into())
        }
    }
}

/// Bytes that may not be there.
pub(crate) mod maybe_bytes {
    use serde::de::Deserializer;
    use serde::ser::Serializer;
    use serde::{Deserialize, Serialize};
    use std::sync::Arc;

    #[derive(Serialize, Deserialize)]
    struct Some(#[serde(with = "super::bytes")] Arc<[u8]>);

    pub(crate) fn serialize<S: Serializer>(bytes: &Option<Arc<[u8]>>, to: S) -> Result<S::Ok, S::Error> {
        bytes.clone().map(Some).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Arc<[u8]>>, D::Error> {
        Ok(Option::<Some>::deserialize(from)?.map(|some| some.0))
    }
}

/// A socket address with flow label and scope.
pub(crate) mod address {
    use serde::de::Deserializer;
    use serde::ser::Serializer;
    use serde::{Deserialize, Serialize};
    use std::net::{IpAddr, SocketAddr, SocketAddrV6};

    #[derive(Serialize, Deserialize)]
    struct Address {
        ip: IpAddr,
        port: u16,
        #[serde(default)]
        flow: u32,
        #[serde(default)]
        scope: u32,
    }

    pub(crate) fn serialize<S: Serializer>(address: &SocketAddr, to: S) -> Result<S::Ok, S::Error> {
        let (flow, scope) = match address {
            SocketAddr::V4(_) => (0, 0),
            SocketAddr::V6(v6) => (v6.flowinfo(), v6.scope_id()),
        };
        Address { ip: address.ip(), port: address.port(), flow, scope }.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
        let Address { ip, port, flow, scope } = Address::deserialize(from)?;
        Ok(match ip {
            IpAddr::V4(_) => SocketAddr::new(ip, port),
            IpAddr::V6(v6) => SocketAddrV6::new(v6, port, flow, scope).into(),
        })
    }
}
