//! What Prometheus is told: values in, text out. Pure.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;

/// Media type of [`text`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Slots, each counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlotCounts {
    /// Offered and held by nobody.
    pub free: u64,
    /// Not offered, and held by nobody.
    pub unhealthy: u64,
    /// Given to a container whose pod has no network yet.
    pub waiting: u64,
    /// Bound to a rail.
    pub bound: u64,
}

/// Rails, each counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RailCounts {
    /// With a link, and nothing against them.
    pub usable: u64,
    /// Without a link.
    pub down: u64,
    /// With something else against them.
    pub faulty: u64,
}

/// Addresses of one family.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct AddressCounts {
    /// Leased.
    pub used: f64,
    /// Of the node's block, without those that are never handed out.
    pub total: f64,
}

/// What was taken away because nobody owned it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GarbageCounts {
    /// Bindings of sandboxes whose network namespace is gone.
    pub bindings: u64,
    /// CDI files.
    pub cdi: u64,
    /// Markers of slots and pods.
    pub markers: u64,
}

/// Everything that is told, at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Values {
    /// Version of the program.
    pub version: &'static str,
    /// Slots.
    pub slots: SlotCounts,
    /// Rails.
    pub rails: RailCounts,
    /// Sandboxes that hold rails.
    pub bindings: u64,
    /// Addresses, by `ipv4` and `ipv6`; families without a pool are left out.
    pub addresses: BTreeMap<&'static str, AddressCounts>,
    /// Registrations that the kubelet took.
    pub registrations: u64,
    /// Containers that were given slots.
    pub allocations: u64,
    /// Since the start.
    pub garbage: GarbageCounts,
    /// Seconds since the topology last changed; `None`: not known yet.
    pub topology_age: Option<f64>,
    /// Each condition of `/readyz`.
    pub conditions: BTreeMap<&'static str, bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pool {
    family: &'static str,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Condition {
    condition: &'static str,
}

/// The text of `/metrics`.
///
/// # Errors
/// None in practice: writing into a text does not fail.
pub fn text(values: &Values) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("podrail");
    register(&mut registry, values);
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

fn register(to: &mut Registry, values: &Values) {
    let version = Info::new([("version", values.version)]);
    to.register("build", "Version of the agent", version);
    let slots = &values.slots;
    let slots = [
        ("free", slots.free),
        ("unhealthy", slots.unhealthy),
        ("waiting", slots.waiting),
        ("bound", slots.bound),
    ];
    to.register("slots", "Slots, each in one state", states(&slots));
    let rails = &values.rails;
    let rails = [
        ("usable", rails.usable),
        ("down", rails.down),
        ("faulty", rails.faulty),
    ];
    to.register("rails", "Rails, each in one state", states(&rails));
    let bindings: Gauge<f64, Float> = gauge(count(values.bindings));
    to.register("bindings", "Pod sandboxes that hold rails", bindings);
    to.register(
        "pool_addresses",
        "Addresses of the node's block",
        addresses(values),
    );
    counters(to, values);
    let age = values.topology_age.unwrap_or(-1.0);
    to.register(
        "topology_age_seconds",
        "Time since the topology last changed; -1 before the first discovery",
        gauge(age),
    );
    to.register(
        "condition",
        "1 where a condition of /readyz holds, else 0",
        conditions(values),
    );
}

fn counters(to: &mut Registry, values: &Values) {
    to.register(
        "registrations",
        "Registrations that the kubelet took since the start",
        counter(values.registrations),
    );
    to.register(
        "allocations",
        "Containers that were given slots since the start",
        counter(values.allocations),
    );
    let garbage = Family::<Kind, Counter>::default();
    let kinds = [
        ("bindings", values.garbage.bindings),
        ("cdi", values.garbage.cdi),
        ("markers", values.garbage.markers),
    ];
    for (kind, number) in kinds {
        garbage.get_or_create(&Kind { kind }).inc_by(number);
    }
    to.register(
        "garbage_collected",
        "Things without an owner that were taken away since the start",
        garbage,
    );
}

/// Where a gauge keeps its number.
type Float = std::sync::atomic::AtomicU64;

fn gauge(value: f64) -> Gauge<f64, Float> {
    let gauge = Gauge::default();
    gauge.set(value);
    gauge
}

fn counter(value: u64) -> Counter {
    let counter = Counter::default();
    counter.inc_by(value);
    counter
}

/// Counts stay far below 2^53.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn count(value: u64) -> f64 {
    value as f64
}

fn states(counts: &[(&'static str, u64)]) -> Family<State, Gauge<f64, Float>> {
    let family = Family::default();
    for (state, number) in counts {
        let gauge: &Gauge<f64, Float> = &family.get_or_create(&State { state });
        gauge.set(count(*number));
    }
    family
}

fn addresses(values: &Values) -> Family<Pool, Gauge<f64, Float>> {
    let family = Family::default();
    for (name, counts) in &values.addresses {
        for (state, number) in [("used", counts.used), ("total", counts.total)] {
            let labels = Pool {
                family: name,
                state,
            };
            let gauge: &Gauge<f64, Float> = &family.get_or_create(&labels);
            gauge.set(number);
        }
    }
    family
}

fn conditions(values: &Values) -> Family<Condition, Gauge<f64, Float>> {
    let family = Family::default();
    for (condition, holds) in &values.conditions {
        let gauge: &Gauge<f64, Float> = &family.get_or_create(&Condition { condition });
        gauge.set(f64::from(u8::from(*holds)));
    }
    family
}

/// The page `docs/metrics.md`: every metric with its type, labels and meaning.
///
/// # Errors
/// As of [`text`].
pub fn page() -> Result<String, fmt::Error> {
    let text = text(&sample())?;
    let rows: Vec<String> = text.split("# HELP ").skip(1).map(row).collect();
    Ok(format!(
        "# Metrics\n\n`podrail agent` serves these at `/metrics`, in the OpenMetrics text format. \
         This page is generated:\n`UPDATE_EXPECT=1 cargo test -p podrail-agent` rewrites it.\n\n\
         | metric | type | labels | meaning |\n|---|---|---|---|\n{}\n",
        rows.join("\n")
    ))
}

/// One of everything, so that every label is shown.
fn sample() -> Values {
    Values {
        addresses: ["ipv4", "ipv6"]
            .map(|family| (family, AddressCounts::default()))
            .into(),
        conditions: crate::board::CONDITIONS.map(|name| (name, true)).into(),
        ..Values::default()
    }
}

/// A row from `name meaning.`, `# TYPE name type` and the samples.
fn row(block: &str) -> String {
    let mut lines = block.lines();
    let (name, meaning) = lines
        .next()
        .and_then(|line| line.split_once(' '))
        .unwrap_or_default();
    let kind = lines
        .next()
        .and_then(|line| line.rsplit(' ').next())
        .unwrap_or_default();
    let samples: Vec<&str> = lines.filter(|line| !line.starts_with('#')).collect();
    let sampled = samples
        .first()
        .and_then(|line| line.split(['{', ' ']).next());
    let mut labels: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for pair in samples.iter().flat_map(|line| label_pairs(line)) {
        let Some((label, value)) = pair.split_once('=') else {
            continue;
        };
        let values = labels.entry(label).or_default();
        let value = value.trim_matches('"');
        if !value.is_empty() && !values.contains(&value) {
            values.push(value);
        }
    }
    let labels: Vec<String> = labels
        .iter_mut()
        .map(|(label, values)| {
            values.sort_unstable();
            let shown = if values.is_empty() {
                String::new()
            } else {
                format!(": {}", values.join(", "))
            };
            format!("`{label}`{shown}")
        })
        .collect();
    let meaning = meaning.trim_end_matches('.');
    format!(
        "| `{}` | {kind} | {} | {meaning} |",
        sampled.unwrap_or(name),
        labels.join("; ")
    )
}

fn label_pairs(line: &str) -> Vec<&str> {
    let inside = line
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    inside
        .map(|(pairs, _)| pairs.split(',').collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_fresh() {
        expect_test::expect_file!["../../../docs/metrics.md"].assert_eq(&page().unwrap());
    }

    #[test]
    fn values_are_in_the_text() {
        let values = Values {
            version: "1.2.3",
            slots: SlotCounts {
                free: 3,
                unhealthy: 1,
                waiting: 2,
                bound: 10,
            },
            addresses: [(
                "ipv4",
                AddressCounts {
                    used: 16.0,
                    total: 32.0,
                },
            )]
            .into(),
            garbage: GarbageCounts {
                cdi: 4,
                ..GarbageCounts::default()
            },
            topology_age: Some(1.5),
            conditions: [("registered", false)].into(),
            allocations: 7,
            ..Values::default()
        };
        let text = text(&values).unwrap();
        for line in [
            "podrail_build_info{version=\"1.2.3\"} 1",
            "podrail_slots{state=\"bound\"} 10.0",
            "podrail_slots{state=\"unhealthy\"} 1.0",
            "podrail_pool_addresses{family=\"ipv4\",state=\"used\"} 16.0",
            "podrail_garbage_collected_total{kind=\"cdi\"} 4",
            "podrail_topology_age_seconds 1.5",
            "podrail_condition{condition=\"registered\"} 0.0",
            "podrail_allocations_total 7",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("ipv6"), "{text}");
    }
}
