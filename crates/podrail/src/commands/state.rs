//! `podrail state`: is the state file sound and true, and the way back when it is not.

mod kubelet;
mod say;
mod stamp;

use crate::cli::{StateCheckArgs, StateRebuildArgs};
use crate::failure::Failure;
use crate::settings::Settings;
use podrail_core::topology::Topology;
use podrail_node::recovery::{
    Books, Census, Evidence, Finding, Recovered, compare, doubts_of, reconstruct, restore,
    take_census,
};
use podrail_node::{
    Deadline, Settings as NodeSettings, attachment, boot_id, discover, is_ready, now,
};
use podrail_store::{Binding, Inspected, ReadOnly, Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};

/// Runs `state check`; changes nothing.
pub(super) fn check(args: &StateCheckArgs) -> Result<(), Failure> {
    let path = &args.state.state;
    let inspected = Store::inspect(path)?;
    let found = inspected.is_some();
    let loose = inspected
        .as_ref()
        .and_then(|inspected| inspected.loose_mode);
    let state = inspected.map_or_else(ReadOnly::default, |inspected| inspected.state);
    let census = take_census(path, &args.evidence.cdi)?;
    let resource = NodeSettings::resource_of(state.setup());
    let (kubelet, notes) = kubelet::slots(&args.evidence, &resource);
    let (differences, mut findings) = differences(&state, &census);
    let books = Books {
        state: &state,
        boot: &boot_id()?,
        differences: &differences,
    };
    findings.extend(compare(&books, &census, &kubelet));
    findings.extend(notes);
    findings.extend(loose.map(|mode| {
        let hint = "nothing has to be done: the next attach, or the agent, tightens it";
        say::finding(path.display(), format!("it has mode {mode:o}"), hint)
    }));
    say::checked(args, found, state.list().len(), &findings)?;
    match findings.is_empty() {
        true => Ok(()),
        false => Err(Failure::Check),
    }
}

/// In what the namespaces of complete sandboxes differ from their plans; plans that are none.
fn differences(
    state: &ReadOnly,
    census: &Census,
) -> (
    BTreeMap<podrail_core::ids::SandboxId, Vec<String>>,
    Vec<Finding>,
) {
    let (mut differences, mut findings) = (BTreeMap::new(), vec![]);
    for binding in state.list().iter().filter(|binding| is_ready(binding)) {
        let sandbox = &binding.request.sandbox;
        match attachment(binding) {
            Ok(attachment) => {
                let path = path_of(binding, census);
                let found = path.map(|path| doubts_of(&attachment.plan, path));
                differences.insert(sandbox.clone(), found.unwrap_or_default());
            }
            Err(error) => {
                let hint = error.hint().unwrap_or_default();
                findings.push(say::finding(sandbox, error.to_string(), &hint));
            }
        }
    }
    (differences, findings)
}

fn path_of<'a>(binding: &Binding, census: &'a Census) -> Option<&'a std::path::Path> {
    let id = binding.request.netns_id?;
    let mut namespaces = census.namespaces.iter();
    let here = namespaces.find(|netns| netns.id == id)?;
    Some(&here.path)
}

/// Runs `state rebuild`.
pub(super) fn rebuild(args: &StateRebuildArgs) -> Result<(), Failure> {
    let path = &args.state.state;
    let old = old_file(args)?;
    let settings = Settings::load(&args.node)?;
    let pool = settings.pool()?.name().clone();
    let seen = old.as_ref();
    let seen = seen.and_then(|old| podrail_node::seen_topology(&old.state, &args.node.root));
    let topology = discover(&args.node.root, &settings.node, seen.as_ref())?.topology;
    let recovered = recover(args, &settings, &topology)?;
    let restored = match args.dry_run {
        true => None,
        false => {
            let why = if old.is_some() { "old" } else { "damaged" };
            let suffix = format!(".{why}-{}", stamp::utc(now()));
            let means = (&pool, &topology);
            let until = Deadline::default();
            Some(restore(path, &recovered, means, &suffix, until)?)
        }
    };
    say::rebuilt(args, &recovered, restored.as_ref())
}

/// The file as it is, if it can be read at all; refuses what is not to be replaced.
fn old_file(args: &StateRebuildArgs) -> Result<Option<Inspected>, Failure> {
    let may = args.force || args.dry_run;
    match Store::inspect(&args.state.state) {
        Ok(Some(found)) if !may => Err(Failure::Sound { path: found.path }),
        Ok(found) => Ok(found),
        Err(error) if is_damage(&error) || (may && is_of_others(&error)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_damage(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Corrupt { .. }
            | StoreError::Damaged { .. }
            | StoreError::BadValue { .. }
            | StoreError::NotADatabase { .. }
            | StoreError::LogWithoutFile { .. }
            | StoreError::Sqlite { .. }
    )
}

fn is_of_others(error: &StoreError) -> bool {
    matches!(error, StoreError::Newer { .. } | StoreError::Foreign { .. })
}

fn recover(
    args: &StateRebuildArgs,
    settings: &Settings,
    topology: &Topology,
) -> Result<Recovered, Failure> {
    let census = take_census(&args.state.state, &args.evidence.cdi)?;
    let pods: BTreeSet<_> = census
        .files
        .iter()
        .filter_map(|file| file.pod.clone())
        .collect();
    let resource = &settings.node.config.resource;
    let (kubelet, notes) = kubelet::ask(&args.evidence, resource, topology, &pods);
    let mut recovered = reconstruct(&Evidence {
        namespaces: &census.namespaces,
        files: &census.files,
        marked: &census.waiting,
        topology,
        kubelet: &kubelet,
    });
    for binding in &mut recovered.bindings {
        let doubts = doubts_of(&binding.attachment.plan, &binding.path);
        for doubt in doubts {
            let hint = "its rails and addresses stay reserved until it is detached";
            let finding = say::finding(binding.sandbox(), doubt.clone(), hint);
            recovered.findings.push(finding);
            binding.doubts.push(doubt);
        }
    }
    recovered.findings.extend(census.findings);
    recovered.findings.extend(notes);
    recovered.findings.sort();
    Ok(recovered)
}
