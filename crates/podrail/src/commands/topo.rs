//! `podrail topo`: the node, or another machine from a dump.

use crate::cli::{TopoArgs, TopoFormat};
use crate::failure::Failure;
use crate::output::{note, print, print_json};
use crate::settings::Settings;
use crate::view::{self, Holder};
use podrail_core::topology::Topology;
use podrail_host::{Note, dump};
use podrail_node::{discover, seen_topology};
use podrail_store::{ReadOnly, Store};
use serde_json::json;
use std::io::IsTerminal;

/// Runs the command; makes no file.
pub(super) fn run(args: &TopoArgs) -> Result<(), Failure> {
    let settings = Settings::load(&args.node)?;
    let (topology, notes, holders) = match &args.from {
        Some(file) => {
            let dump = dump::read(file, &settings.node.selectors)?;
            (dump.topology, dump.notes, vec![])
        }
        None => {
            let state = Store::open_read_only(&args.state.state)?;
            let seen = seen_topology(&state, &args.node.root);
            let found = discover(&args.node.root, &settings.node, seen.as_ref())?;
            let holders = holders(&state, &found.topology);
            (found.topology, found.notes, holders)
        }
    };
    match args.output {
        TopoFormat::Json => print_json(&as_json(&topology, &holders, &notes)),
        TopoFormat::Svg => print(&view::svg(
            &topology,
            &holders,
            &view::SvgOptions::default(),
        )),
        TopoFormat::Text => {
            print(&view::tree(&topology, &holders, style()))?;
            notes.iter().for_each(|found| note(&found.to_string()));
            Ok(())
        }
    }
}

fn style() -> view::Style {
    let color = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    view::Style {
        color,
        ..view::Style::default()
    }
}

/// Who holds what, as far as the state file tells.
fn holders(state: &ReadOnly, topology: &Topology) -> Vec<Holder> {
    let position = |pci| {
        topology
            .gpus
            .iter()
            .position(|gpu| gpu.path.function == pci)
    };
    let holder = |binding: &podrail_store::Binding| Holder {
        name: binding.request.sandbox.to_string(),
        gpus: binding
            .request
            .gpus
            .iter()
            .filter_map(|pci| position(*pci))
            .collect(),
        rails: binding.rails.iter().map(|rail| rail.index).collect(),
    };
    state.list().iter().map(holder).collect()
}

fn as_json(topology: &Topology, holders: &[Holder], notes: &[Note]) -> serde_json::Value {
    let holders: Vec<_> = holders
        .iter()
        .map(|holder| json!({ "name": holder.name, "gpus": holder.gpus, "rails": holder.rails }))
        .collect();
    let notes: Vec<String> = notes.iter().map(ToString::to_string).collect();
    json!({ "topology": topology, "holders": holders, "notes": notes })
}
