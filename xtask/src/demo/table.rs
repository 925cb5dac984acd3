//! The jobs under three allocators: two as models of the same node, Podrail as it was just done.

use super::Job;
use crate::allocators::{Allocator, Request, topology};
use anyhow::{Context, Result, ensure};
use podrail_core::topology::Topology;
use podrail_lab::Shape;
use serde_json::Value;

/// A draw of the kubelet's dice as bad as the post's; the mean of many is in docs/allocators.md.
const SEED: u64 = 3;

/// Prints the table; fails if a rail of a job is next to none of its GPUs.
pub(super) fn print(shape: &Shape, jobs: &[Job], status: &Value) -> Result<()> {
    let topology = topology(shape)?;
    println!(
        "{:17} {:5} {:17} {:32} NEXT TO GPU",
        "ALLOCATOR", "JOB", "GPUS", "RAILS"
    );
    for allocator in [Allocator::Kubelet, Allocator::Restricted] {
        for (job, outcome) in jobs.iter().zip(modelled(allocator, &topology, jobs)) {
            let name = allocator.name().trim_matches('`');
            println!("{name:17} {:5} {outcome}", job.name);
        }
    }
    for job in jobs {
        let held = held(status, job)?;
        println!("{:17} {:5} {held}", "Podrail (here)", job.name);
    }
    println!(
        "The first two are models of this node (one draw; docs/allocators.md has 1,000 pods), \
         Podrail's rows are the pods above."
    );
    Ok(())
}

fn modelled(allocator: Allocator, topology: &Topology, jobs: &[Job]) -> Vec<String> {
    let requests: Vec<Request> = jobs
        .iter()
        .zip(0..)
        .map(|(job, pod)| Request {
            pod,
            gpus: job.gpus.clone(),
            rails: u16::try_from(job.rails()).unwrap_or(u16::MAX),
        })
        .collect();
    let outcomes = allocator.place_all(topology, &requests, SEED);
    outcomes
        .into_iter()
        .map(|outcome| match outcome {
            Ok((grant, score)) => {
                let rails = grant.rails.iter().map(|rail| usize::from(rail.0));
                line(&grant.gpus, rails, score.near)
            }
            Err(rejection) => format!("rejected: {rejection}"),
        })
        .collect()
}

/// What a pod has on the node.
fn held(status: &Value, job: &Job) -> Result<String> {
    let pods = status.as_array().context("status is no list")?;
    let named = |pod: &&Value| {
        pod.pointer("/pod/name")
            .is_some_and(|name| name == job.name)
    };
    let pod = pods.iter().find(named).context("the pod holds no rails")?;
    let rails = pod.get("rails").and_then(Value::as_array);
    let rails = rails.context("the pod holds no rails")?;
    let indexes = rails.iter().filter_map(|rail| rail.get("index")?.as_u64());
    let near = pod.get("near").and_then(Value::as_u64).unwrap_or(0);
    let near = usize::try_from(near)?;
    ensure!(
        near == rails.len(),
        "{}: {near} of {} rails next to its GPUs",
        job.name,
        rails.len()
    );
    let indexes = indexes.filter_map(|index| usize::try_from(index).ok());
    Ok(line(&job.gpus, indexes, near))
}

fn line(gpus: &[usize], rails: impl Iterator<Item = usize>, near: usize) -> String {
    let list = |numbers: Vec<usize>| {
        let texts: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        texts.join(",")
    };
    let rails: Vec<usize> = rails.collect();
    let count = rails.len();
    format!(
        "{:17} {:32} {near} of {count}",
        list(gpus.to_vec()),
        list(rails)
    )
}
