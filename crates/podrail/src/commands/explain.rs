//! `podrail explain`: GPUs, rails, distances, ceiling, and what is wrong in words.

use crate::cli::{ExplainArgs, Format};
use crate::failure::Failure;
use crate::output::{print, print_json};
use crate::settings::Settings;
use crate::view;
use podrail_core::explain::{Explanation, Surroundings, explain};
use podrail_core::ids::SandboxId;
use podrail_core::topology::{Level, Topology};
use podrail_node::{attachment, bound, discover, seen_topology};
use podrail_store::{Binding, ReadOnly, Store};
use serde_json::json;

/// Runs the command; changes nothing.
pub(super) fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let state = Store::open_read_only(&args.state.state)?;
    let binding = wanted(args, &state)?;
    let settings = Settings::load(&args.node)?;
    let topology: Topology = {
        let seen = seen_topology(&state, &args.node.root);
        discover(&args.node.root, &settings.node, seen.as_ref())?.topology
    };
    let attachment = attachment(binding)?;
    let around = Surroundings {
        topology: &topology,
        overrides: &settings.node.config.rails.overrides,
        bound: &bound(&state.snapshot(), &topology),
    };
    let explained = explain(&around, &attachment);
    let sandbox = &binding.request.sandbox;
    match args.output.output {
        Format::Json => print_json(&json!({
            "sandbox": sandbox,
            "pod": binding.request.pod,
            "explanation": explained,
        })),
        Format::Text => {
            let pod = binding.request.pod.as_ref();
            let who = pod.map_or_else(|| sandbox.to_string(), |pod| format!("pod {pod}"));
            print(&text(&who, &explained))
        }
    }
}

/// The newest sandbox of the pod: after a crash an older one may still be there.
fn wanted<'a>(args: &ExplainArgs, state: &'a ReadOnly) -> Result<&'a Binding, Failure> {
    let asked = args.pod.as_ref().or(args.id.as_ref());
    let unknown = || Failure::NothingHeld {
        asked: asked.cloned().unwrap_or_default(),
    };
    if let Some(id) = &args.id {
        return state.get(&SandboxId::parse(id)?).ok_or_else(unknown);
    }
    let of_pod = state.list().iter().filter(|binding| {
        let pod = binding.request.pod.as_ref().map(ToString::to_string);
        pod.is_some() && pod == args.pod
    });
    of_pod
        .max_by_key(|binding| binding.sequence)
        .ok_or_else(unknown)
}

fn text(who: &str, explained: &Explanation) -> String {
    let summary = format!(
        "{who}: {} of {} rails next to its GPUs\n",
        explained.near.rails, explained.all.rails
    );
    let ceiling = format!(
        "ceiling: {} from links next to its GPUs, of {} if all were\n",
        explained.near, explained.all
    );
    let mut text = summary + &matrix(explained) + &ceiling;
    for finding in &explained.findings {
        text.push_str(&format!("- {finding}\n"));
    }
    text
}

/// One line per rail, one column per GPU.
fn matrix(explained: &Explanation) -> String {
    let gpus = explained.gpus.iter().map(|gpu| match gpu.index {
        Some(index) => format!("GPU{index} {}", gpu.pci),
        None => format!("gone {}", gpu.pci),
    });
    let headers: Vec<String> = ["RAIL", "NETDEV", "RDMA", "SPEED"]
        .map(str::to_owned)
        .into_iter()
        .chain(gpus)
        .collect();
    let rows: Vec<Vec<String>> = explained
        .rails
        .iter()
        .map(|rail| {
            let speed = rail.speed_mbps.map(|mbps| format!("{} Gb/s", mbps / 1000));
            let rdma = rail.rdma.as_ref().map(ToString::to_string);
            let fixed = [
                rail.index.to_string(),
                rail.netdev.to_string(),
                rdma.unwrap_or_else(|| "none".into()),
                speed.unwrap_or_else(|| "?".into()),
            ];
            fixed
                .into_iter()
                .chain(rail.levels.iter().map(|level| in_words(*level)))
                .collect()
        })
        .collect();
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    view::table(&headers, &rows)
}

fn in_words(level: Option<Level>) -> String {
    level.map_or_else(|| "gone".into(), |level| level.to_string())
}
