//! The text format of Prometheus.

use crate::Filter;
use metrics::{ALL, Kind, Series};
use prometheus::TextEncoder;
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

/// Values as text, in the order of [`ALL`], names with a prefix.
pub fn text(series: &[Series], prefix: &str, filter: &Filter) -> String {
    let mut families = Vec::new();
    for figure in ALL.iter().filter(|figure| filter.shows(figure)) {
        let of = series.iter().filter(|one| std::ptr::eq(one.figure, *figure));
        let values: Vec<Metric> = of.map(metric).collect();
        if values.is_empty() {
            continue;
        }
        let mut family = MetricFamily::default();
        family.set_name(format!("{prefix}{}", figure.name));
        family.set_help(figure.help.into());
        family.set_field_type(match figure.kind {
            Kind::Counter => MetricType::COUNTER,
            Kind::Gauge => MetricType::GAUGE,
        });
        family.set_metric(values);
        families.push(family);
    }
    // It fails for families without a name or a value, of which there is none.
    TextEncoder::new().encode_to_string(&families).unwrap_or_default()
}

fn metric(series: &Series) -> Metric {
    let labels = series.labels.iter().map(|(name, value)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).into());
        pair.set_value(value.clone());
        pair
    });
    let mut metric = Metric::from_label(labels.collect());
    let value = series.figure.unit.scale(series.value);
    match series.figure.kind {
        Kind::Counter => {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        }
        Kind::Gauge => {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
    }
    metric
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics::{CPU, FS_OPENS, SANDBOX_PRESENCE};

    #[test]
    fn figures_become_text() {
        let of = [("sandbox", "a\"b\\c\nd".to_string())];
        let series = [
            Series::new(&CPU, &of, ["user".into()], 1_500_000_000),
            Series::new(&SANDBOX_PRESENCE, &of, [], 1),
            Series::new(&CPU, &of, ["system".into()], 0),
        ];
        let shown = text(&series, "runsc_", &Filter::default());
        let lines: Vec<&str> = shown.lines().collect();
        let label = r#"sandbox="a\"b\\c\nd""#;
        assert_eq!(lines[1], "# TYPE runsc_sandbox_presence gauge");
        assert_eq!(lines[2], format!("runsc_sandbox_presence{{{label}}} 1"));
        assert_eq!(lines[4], "# TYPE runsc_processor_seconds_total counter");
        assert_eq!(lines[5], format!(r#"runsc_processor_seconds_total{{{label},mode="user"}} 1.5"#));
        assert_eq!(lines[6], format!(r#"runsc_processor_seconds_total{{{label},mode="system"}} 0"#));
        assert_eq!(lines.len(), 7);
        assert!(!shown.contains(FS_OPENS.name));
        let some = text(&series, "", &Filter::new("presence").unwrap());
        assert!(some.starts_with("# HELP sandbox_presence ") && !some.contains("seconds"));
    }
}
