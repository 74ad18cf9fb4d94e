//! Samples that another process has sent.

use crate::{Figure, Sample, Scope, figure};
use std::collections::BTreeMap;

/// Most samples of one container that are read.
pub const MAX_SAMPLES: usize = 4096;
/// Longest label that is shown.
const MAX_LABEL: usize = 128;

/// The samples that a reader can use, in the order of their figures: of figures that the kernel has, with the right
/// number of labels, each series once. Labels are cut, and control characters in them removed.
pub fn checked(samples: impl IntoIterator<Item = Sample>) -> Vec<(&'static Figure, Sample)> {
    let mut series = BTreeMap::new();
    for mut sample in samples.into_iter().take(MAX_SAMPLES) {
        let Some(figure) = figure(&sample.name) else { continue };
        if figure.scope == Scope::Server || figure.labels.len() != sample.labels.len() {
            continue;
        }
        for label in &mut sample.labels {
            let clean = label.chars().filter(|c| !c.is_control()).take(MAX_LABEL);
            *label = clean.collect();
        }
        series.entry((figure.name, sample.labels.clone())).or_insert((figure, sample));
    }
    series.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ALL, Kind, OPEN_FILES, SANDBOXES_RUNNING, UNIMPLEMENTED, Unit};

    fn sample(name: &str, labels: &[&str], value: u64) -> Sample {
        Sample { name: name.into(), labels: labels.iter().map(|l| l.to_string()).collect(), value }
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let bad = [
            sample("no_such_figure", &[], 1),
            sample(SANDBOXES_RUNNING.name, &[], 1),
            sample(OPEN_FILES.name, &["surplus"], 1),
            sample(UNIMPLEMENTED.name, &[], 1),
        ];
        assert_eq!(checked(bad), []);
    }

    #[test]
    fn a_series_comes_once_and_labels_are_clean() {
        let long = "x".repeat(1000);
        let good = checked([
            sample(OPEN_FILES.name, &[], 1),
            sample(OPEN_FILES.name, &[], 2),
            sample(UNIMPLEMENTED.name, &["a\n\u{1b}b"], 3),
            sample(UNIMPLEMENTED.name, &[&long], 4),
        ]);
        let seen: Vec<_> = good.iter().map(|(_, s)| (s.labels.concat().len(), s.value)).collect();
        assert_eq!(seen, [(0, 1), (2, 3), (128, 4)]);
        let endless = (0..).map(|n: u64| sample(UNIMPLEMENTED.name, &[&n.to_string()], n));
        assert_eq!(checked(endless).len(), MAX_SAMPLES);
    }

    #[test]
    fn figures_are_well_formed() {
        let mut names = std::collections::HashSet::new();
        for figure in ALL {
            let name = figure.name;
            assert!(names.insert(name), "{name} is there twice");
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'), "{name}");
            let total = name.ends_with("_total");
            assert_eq!(total, figure.kind == Kind::Counter, "{name}");
            let stem = name.trim_end_matches("_total");
            assert_eq!(stem.ends_with("_bytes"), figure.unit == Unit::Bytes, "{name}");
            assert_eq!(stem.ends_with("_seconds"), figure.unit == Unit::Seconds, "{name}");
            assert!(figure.help.ends_with('.') && !figure.help.contains('\n'), "{name}");
            let taken = ["sandbox", "container", "pod_name", "namespace", "iteration"];
            assert!(figure.labels.iter().all(|label| !taken.contains(label)), "{name}");
        }
    }
}
