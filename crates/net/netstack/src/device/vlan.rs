//! Tags of VLANs (IEEE 802.1Q) in frames.

use crate::buf::Buf;
use crate::wire::eth;

/// Where the tag is in a frame: behind both addresses.
const TAG_AT: usize = 12;
const TAG: usize = 4;
/// The bits of a tag that name the VLAN.
const ID: u16 = 0x0fff;

/// Puts a tag into a frame; false for one that is too short.
pub(crate) fn add_tag(frame: &mut Buf, id: u16) -> bool {
    let Some(addresses) = frame.first_chunk::<TAG_AT>().copied() else { return false };
    frame.trim_front(TAG_AT);
    frame.push_front(&id.to_be_bytes());
    frame.push_front(&eth::VLAN.to_be_bytes());
    frame.push_front(&addresses);
    true
}

/// The number of the VLAN that a tag in a frame names.
pub(crate) fn tag_of(frame: &[u8]) -> Option<u16> {
    let tag = frame.get(TAG_AT + 2..TAG_AT + TAG)?;
    Some(u16::from_be_bytes(tag.try_into().ok()?) & ID)
}

/// Takes the tag out of a frame that has one.
pub(crate) fn remove_tag(frame: &mut Buf) {
    let Some(addresses) = frame.first_chunk::<TAG_AT>().copied() else { return };
    frame.trim_front(TAG_AT + TAG);
    frame.push_front(&addresses);
}
