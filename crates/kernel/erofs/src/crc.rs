//! CRC-32C without the final inversion, as super blocks have it.

/// The polynomial, lowest bit first.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The checksum of these bytes.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let bit = |crc: u32| crc >> 1 ^ if crc & 1 != 0 { POLYNOMIAL } else { 0 };
    bytes.iter().fold(u32::MAX, |crc, &b| (0..8).fold(crc ^ u32::from(b), |crc, _| bit(crc)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn known_value() {
        // The check value of CRC-32C, before its inversion.
        assert_eq!(!super::crc32c(b"123456789"), 0xe306_9283);
    }
}
