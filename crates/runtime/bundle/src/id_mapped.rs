//! Mounts that map the owners of their files: `idmap`, `ridmap`, and the mappings of a mount.

use crate::namespaces::{self, IdMaps, IdRange};
use crate::{Error, Result, fail};
use oci_spec::runtime::LinuxIdMapping;
use serde::{Deserialize, Serialize};

/// How a mount maps the owners of its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMapped {
    /// IDs of the file system (inside), and those that they become (outside).
    pub maps: IdMaps,
    /// The mounts below, too.
    pub recursive: bool,
}

/// Members of a configuration that the parser passes over.
#[derive(Default, Deserialize)]
struct UnparsedMembers {
    #[serde(default)]
    mounts: Option<Vec<Mount>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mount {
    #[serde(default)]
    uid_mappings: Option<Vec<LinuxIdMapping>>,
    #[serde(default)]
    gid_mappings: Option<Vec<LinuxIdMapping>>,
}

/// The mappings of each mount in the text of a configuration.
pub(crate) fn of_text(text: &str) -> Result<Vec<Option<IdMaps>>> {
    let seen: UnparsedMembers = match serde_json::from_str(text) {
        Ok(seen) => seen,
        Err(error) => fail!("mounts: uidMappings, gidMappings: {error}"),
    };
    let maps = |(index, mount): (usize, &Mount)| {
        let uids = namespaces::ranges(&format!("mounts[{index}].uidMappings"), &mount.uid_mappings)?;
        let gids = namespaces::ranges(&format!("mounts[{index}].gidMappings"), &mount.gid_mappings)?;
        match (uids.is_empty(), gids.is_empty()) {
            (true, true) => Ok(None),
            (false, false) => Ok(Some(IdMaps { uids, gids })),
            _ => Err(Error(format!("mounts[{index}]: uidMappings and gidMappings must be given together"))),
        }
    };
    seen.mounts.iter().flatten().enumerate().map(maps).collect()
}

/// The mapping of a mount: its own, or that of the container's user namespace.
pub(crate) fn of(own: Option<&IdMaps>, container: Option<&IdMaps>, recursive: bool) -> Result<IdMapped> {
    let Some(maps) = own.or(container) else {
        fail!(
            "option idmap needs uidMappings and gidMappings, in the mount or in linux together with a user namespace"
        )
    };
    let mut maps = maps.clone();
    let root = |ranges: &[IdRange]| ranges.iter().find(|range| range.inside == 0).map(|range| range.outside);
    add_maker(&mut maps.uids, container.map_or(Some(0), |maps| root(&maps.uids)));
    add_maker(&mut maps.gids, container.map_or(Some(0), |maps| root(&maps.gids)));
    Ok(IdMapped { maps, recursive })
}

/// Files are made by the sandbox's root, which then gives them their owner. So the mount has to know that root: as the highest ID
/// that the mapping leaves free, which no file is expected to have.
fn add_maker(ranges: &mut Vec<IdRange>, maker: Option<u32>) {
    let has = |first: u32, range: &IdRange, id: u32| id.checked_sub(first).is_some_and(|n| n < range.count);
    let Some(outside) = maker.filter(|id| !ranges.iter().any(|range| has(range.outside, range, *id))) else {
        return;
    };
    let mut inside = u32::MAX - 1;
    while let Some(range) = ranges.iter().find(|range| has(range.inside, range, inside)) {
        let Some(below) = range.inside.checked_sub(1) else { return };
        inside = below;
    }
    ranges.push(IdRange { inside, outside, count: 1 });
}

/// The users and the groups that files can have, as the container sees them: ranges of (first, count).
pub(crate) fn owners_seen(own: Option<&IdMaps>, container: Option<&IdMaps>) -> [Vec<(u32, u32)>; 2] {
    let seen = |ranges: fn(&IdMaps) -> &Vec<IdRange>| {
        let through = container.map(ranges);
        own.or(container)
            .iter()
            .flat_map(|maps| ranges(maps))
            .flat_map(|r| seen_through(r, through))
            .collect()
    };
    [seen(|maps| &maps.uids), seen(|maps| &maps.gids)]
}

/// The parts of a range's IDs that a container has, under the container's numbers.
fn seen_through(range: &IdRange, container: Option<&Vec<IdRange>>) -> Vec<(u32, u32)> {
    let Some(container) = container else { return vec![(range.outside, range.count)] };
    let end = |first: u32, count: u32| u64::from(first) + u64::from(count);
    let part = |own: &IdRange| {
        let first = own.outside.max(range.outside);
        let last = end(own.outside, own.count).min(end(range.outside, range.count));
        let count = u32::try_from(last.checked_sub(u64::from(first))?).ok().filter(|count| *count > 0)?;
        Some((own.inside + (first - own.outside), count))
    };
    container.iter().filter_map(part).collect()
}
