//! A few jobs on one node, small enough to show every device.

use super::page::{percent, table};
use crate::allocators::{Allocator, Grant, Rejection, Request, Score, share};
use podrail_core::ids::RailIndex;
use podrail_core::topology::Topology;

/// Draws of a mean.
const DRAWS: u64 = 1_000;

/// Jobs that are admitted together.
pub(super) struct Scene {
    /// A heading.
    title: &'static str,
    /// What to look at.
    text: &'static str,
    /// GPUs and rails of each job.
    jobs: &'static [(&'static [usize], u16)],
}

/// All on the shape B4.8.
pub(super) const SCENES: [Scene; 3] = [
    Scene {
        title: "Two jobs with 4 GPUs and 8 rails each",
        text: "The GPUs of the published test's run without a policy.",
        jobs: &[(&[2, 3, 4, 5], 8), (&[0, 1, 6, 7], 8)],
    },
    Scene {
        title: "The same, one GPU of every root for each job",
        text: "Every rail is near to some GPU of each job, so only the ceiling shows whose shares do not \
               fit.\n`restricted` chooses the GPUs itself.",
        jobs: &[(&[0, 2, 4, 6], 8), (&[1, 3, 5, 7], 8)],
    },
    Scene {
        title: "One job with 4 GPUs and 16 rails",
        text: "The GPUs fit on 2 NUMA nodes and the rails need 4: no set of nodes is the smallest \
               for both, so\n`restricted` never admits it. 8 rails can be near, the others are \
               further away.",
        jobs: &[(&[0, 1, 2, 3], 16)],
    },
];

impl Scene {
    /// Heading, text and table.
    pub(super) fn section(&self, topology: &Topology, seed: u64) -> String {
        let jobs = self.requests();
        let mut rows = vec![];
        for allocator in Allocator::ALL {
            let outcomes = allocator.place_all(topology, &jobs, seed);
            let numbered = outcomes.into_iter().zip(1..);
            rows.extend(numbered.map(|(outcome, job)| row(allocator, job, outcome)));
            if allocator == Allocator::Kubelet && jobs.len() > 1 {
                rows.extend(means(topology, &jobs));
            }
        }
        let header = [
            "allocator",
            "job",
            "GPUs",
            "rails",
            "near",
            "GPUs remote",
            "ceiling",
        ];
        let table = table(&header.map(String::from), &rows);
        format!("### {}\n\n{}\n\n{table}", self.title, self.text)
    }

    /// The jobs as pods, in their order.
    pub(super) fn requests(&self) -> Vec<Request> {
        let jobs = self.jobs.iter().zip(1..);
        jobs.map(|((gpus, rails), pod)| Request {
            pod,
            gpus: gpus.to_vec(),
            rails: *rails,
        })
        .collect()
    }
}

/// The kubelet's choice over many draws, one row for each job.
fn means(topology: &Topology, jobs: &[Request]) -> Vec<[String; 7]> {
    let draws: Vec<Vec<Score>> = (1..=DRAWS)
        .map(|seed| Allocator::Kubelet.place_all(topology, jobs, seed))
        .map(|outcomes| outcomes.into_iter().flatten().map(|(_, score)| score))
        .map(Iterator::collect)
        .collect();
    let mean = |job: usize, of: fn(&Score) -> f64| {
        let scores = draws.iter().filter_map(|draw| draw.get(job));
        scores.map(of).sum::<f64>() / share(draws.len(), 1)
    };
    let row = |(job, request): (usize, &Request)| {
        let near = mean(job, |score| share(score.near, 1));
        let remote = mean(job, |score| share(score.remote_gpus, 1));
        [
            format!("… mean of {DRAWS} draws"),
            request.pod.to_string(),
            list(request.gpus.iter().map(|gpu| index(*gpu))),
            "any".into(),
            format!("{near:.1} of {}", request.rails),
            format!("{remote:.1}"),
            percent(mean(job, Score::ceiling)),
        ]
    };
    jobs.iter().enumerate().map(row).collect()
}

fn row(allocator: Allocator, job: u32, outcome: Result<(Grant, Score), Rejection>) -> [String; 7] {
    let [gpus, rails, near, remote, ceiling] = match outcome {
        Ok((grant, score)) => [
            list(grant.gpus.iter().map(|gpu| index(*gpu))),
            list(grant.rails.iter().map(|RailIndex(rail)| *rail)),
            format!("{} of {}", score.near, score.rails),
            score.remote_gpus.to_string(),
            percent(score.ceiling()),
        ],
        Err(rejection) => [
            rejection.to_string(),
            "-".into(),
            "-".into(),
            "-".into(),
            "-".into(),
        ],
    };
    [
        allocator.name().into(),
        job.to_string(),
        gpus,
        rails,
        near,
        remote,
        ceiling,
    ]
}

fn index(gpu: usize) -> u16 {
    u16::try_from(gpu).unwrap_or(u16::MAX)
}

/// `0-3, 12`: runs of numbers in order.
fn list(numbers: impl Iterator<Item = u16>) -> String {
    let mut runs: Vec<(u16, u16)> = vec![];
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let texts = runs.into_iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}-{last}"),
    });
    texts.collect::<Vec<_>>().join(", ")
}
