//! Where the search stands: what the pods that were served leave to the others.

use super::cost::Cost;
use super::patterns::Pattern;
use super::ports;
use super::problem::Problem;
use std::collections::BTreeMap;
use std::rc::Rc;

/// NICs that one more pod splits, by the number of rails that it takes; as long as what it can take.
pub(super) type Table = Rc<Vec<Cost>>;

/// Tables by class and what others take of it, ascending.
pub(super) type Tables = BTreeMap<(usize, Vec<usize>), Table>;

/// The needs served so far, as far as they matter to the rest.
#[derive(Debug)]
pub(super) struct Standing {
    served: usize,
    taken: Vec<usize>,
    /// For other pods.
    splits: Vec<Table>,
    /// For the own pod: split NICs and order.
    alone: Vec<Table>,
}

impl Standing {
    /// After the first needs got these patterns.
    pub(super) fn after(problem: &Problem, chosen: &[Pattern], tables: &mut Tables) -> Self {
        let (mut taken, mut splits) = (vec![], vec![]);
        for (place, class) in problem.classes.iter().enumerate() {
            let wants = wants(chosen, place);
            taken.push(wants.iter().sum());
            let known = tables.entry((place, wants));
            let beside =
                known.or_insert_with_key(|(_, wants)| Rc::new(ports::beside(class, wants)));
            splits.push(Rc::clone(beside));
        }
        // Only the first of all needs is the own pod's.
        let classes = problem.classes.iter().filter(|_| chosen.is_empty());
        Self {
            served: chosen.len(),
            taken,
            splits,
            alone: classes.map(|class| Rc::new(ports::alone(class))).collect(),
        }
    }

    /// How many needs are served.
    pub(super) fn served(&self) -> usize {
        self.served
    }

    /// Shares taken of each class.
    pub(super) fn taken(&self) -> impl Iterator<Item = usize> {
        self.taken.iter().copied()
    }

    /// Rails of each class that one more pod can take.
    pub(super) fn room(&self) -> impl Iterator<Item = usize> {
        self.splits
            .iter()
            .map(|table| table.len().saturating_sub(1))
    }

    /// What the need at `place` would split in each class.
    pub(super) fn splits(&self, place: usize) -> Vec<Table> {
        if place == 0 {
            self.alone.clone()
        } else {
            self.splits.clone()
        }
    }
}

fn wants(chosen: &[Pattern], class: usize) -> Vec<usize> {
    let counts = chosen
        .iter()
        .filter_map(|pattern| pattern.counts.get(class));
    let mut wants: Vec<usize> = counts.copied().filter(|count| *count > 0).collect();
    wants.sort_unstable();
    wants
}
