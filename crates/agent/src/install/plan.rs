//! What has to happen in the directory of CNI configurations. Pure.
//!
//! Runtimes load the first file in bytewise order that ends with `.conf`, `.conflist` or `.json`
//! (containerd `go-cni`, CRI-O `ocicni`). The rule here: **Podrail makes no node ready or NotReady by
//! itself**. So ours is a copy of that first file, and goes when the first file goes. While the first
//! file is broken, a copy stays: go-cni fails at the first invalid file that it comes to, and it does
//! not come to a second. A plugin that rewrites its file in place would find the node NotReady.

use super::conflist::{Network, Reference, entry, refers_to_ours};
use super::standing::{Standing, Why};
use podrail_node::Places;

/// Names that a copy may have: the first that sorts before the original. `+`, `-` and `.` sort
/// before digits and letters.
const NAMES: [&str; 4] = [
    "00-podrail.conflist",
    "00--podrail.conflist",
    "0-podrail.conflist",
    "+podrail.conflist",
];

/// Name of a copy of Multus' own configuration. Multus takes the first configuration that is not
/// its own as the cluster's, and would call itself for ever if it took this one. It leaves out
/// names that start with `00-multus` (4.x) or that have `00-multus.conf` in them (3.x).
const MULTUS_NAME: &str = "00-multus-podrail-00-multus.conflist";

/// A file of the directory that runtimes would load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfFile {
    /// Its name.
    pub name: String,
    /// Its content, or why it cannot be read.
    pub content: Result<Vec<u8>, String>,
}

/// One change of the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make or replace a file, at once.
    Write {
        /// Its name.
        name: String,
        /// Its content.
        text: String,
    },
    /// Remove a file of ours.
    Remove {
        /// Its name.
        name: String,
    },
}

/// What to do, in this order, and where it leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Changes; none if all is as it should be.
    pub steps: Vec<Step>,
    /// Where they lead.
    pub standing: Standing,
}

/// Decides from the files of the directory, in any order.
///
/// # Guarantees
/// Twice: the plan for a directory in which a plan was carried out has no steps. Files that are
/// not ours are never in a step.
#[must_use]
pub fn plan(files: &[ConfFile], places: &Places) -> Plan {
    let dir = Dir::sort(files);
    match dir.choose() {
        Ok(choice) => dir.carry_out(&choice, places),
        Err(Standing::Waiting(why @ Why::Broken { .. })) => dir.keep(why),
        Err(standing) => Plan {
            steps: dir.remove_all_but(None),
            standing,
        },
    }
}

/// What is left when Podrail goes: nothing of ours, but for a plain copy where Multus names our
/// file. It would start no pod until it is started anew.
///
/// # Guarantees
/// As of [`plan`].
#[must_use]
pub fn unplan(files: &[ConfFile]) -> (Vec<Step>, Option<String>) {
    let dir = Dir::sort(files);
    match dir.choose() {
        Ok(choice) if choice.named_by_multus => {
            let text = choice.network.copy(&choice.original, None);
            let mut steps = dir.write(&choice.file, text);
            steps.extend(dir.remove_all_but(Some(&choice.file)));
            (steps, Some(choice.file))
        }
        _ => (dir.remove_all_but(None), None),
    }
}

/// Every name that a file of ours may have.
pub(super) fn all_names() -> Vec<&'static str> {
    NAMES.into_iter().chain([MULTUS_NAME]).collect()
}

/// Whether a configuration is left that calls our plugin: Multus' copy, or one made by hand.
pub(super) fn calls_ours(files: &[ConfFile]) -> bool {
    let content = |file: &ConfFile| file.content.clone().unwrap_or_default();
    files
        .iter()
        .any(|file| refers_to_ours(&content(file), &[]).is_some())
}

/// The directory, taken apart.
struct Dir<'a> {
    ours: Vec<&'a ConfFile>,
    others: Vec<&'a ConfFile>,
}

/// What to copy, and where to.
struct Choice {
    file: String,
    original: String,
    network: Network,
    below_multus: bool,
    named_by_multus: bool,
}

impl<'a> Dir<'a> {
    fn sort(files: &'a [ConfFile]) -> Self {
        let mut files: Vec<&ConfFile> = files.iter().collect();
        files.sort_by(|a, b| a.name.cmp(&b.name));
        let (ours, others) = files.into_iter().partition(|file| is_ours(file));
        Self { ours, others }
    }

    fn choose(&self) -> Result<Choice, Standing> {
        let first = self
            .others
            .first()
            .ok_or(Standing::Waiting(Why::NoConfiguration))?;
        let network = usable(first)?;
        if network.has_ours() {
            let file = first.name.clone();
            return Err(Standing::ByHand { file });
        }
        if !network.is_multus() {
            return self.after(first, network, None);
        }
        let content = first.content.as_deref().unwrap_or_default();
        match refers_to_ours(content, &NAMES) {
            Some(reference) => self.below_multus(&reference),
            None if MULTUS_NAME < first.name.as_str() => {
                self.after(first, network, Some(MULTUS_NAME))
            }
            None => Err(sorts_first(first)),
        }
    }

    /// A copy of `original`, under the given name or the first that fits.
    fn after(
        &self,
        original: &ConfFile,
        network: Network,
        name: Option<&str>,
    ) -> Result<Choice, Standing> {
        network
            .unspoken_version()
            .map_err(|reason| unusable(original, reason))?;
        let taken = |name: &str| self.others.iter().any(|file| file.name == name);
        let mut fitting = NAMES
            .into_iter()
            .filter(|name| *name < original.name.as_str() && !taken(name));
        let file = name.or_else(|| fitting.next());
        Ok(Choice {
            file: file.ok_or_else(|| sorts_first(original))?.to_owned(),
            original: original.name.clone(),
            network,
            below_multus: false,
            named_by_multus: false,
        })
    }

    /// Multus was started after us and took our copy as the cluster's configuration: the copy
    /// goes on, of what Multus would have taken.
    fn below_multus(&self, reference: &Reference) -> Result<Choice, Standing> {
        let seen_by_multus = |file: &&&ConfFile| {
            !file.name.starts_with("00-multus") && !file.name.ends_with(".json")
        };
        let original = self
            .others
            .iter()
            .find(seen_by_multus)
            .ok_or(Standing::Waiting(Why::NoConfiguration))?;
        let network = usable(original)?;
        let (name, named_by_multus) = match reference {
            Reference::File(name) => (Some(name.as_str()), true),
            Reference::Embedded => (None, false),
        };
        if network.is_multus() {
            return Err(unusable(original, "it is Multus again".into()));
        }
        if network.has_ours() {
            let file = original.name.clone();
            return Err(Standing::ByHand { file });
        }
        let choice = self.after(original, network, name)?;
        Ok(Choice {
            below_multus: true,
            named_by_multus,
            ..choice
        })
    }

    fn carry_out(&self, choice: &Choice, places: &Places) -> Plan {
        let ours = entry(places);
        let text = choice.network.copy(&choice.original, Some(&ours));
        let mut steps = self.write(&choice.file, text);
        steps.extend(self.remove_all_but(Some(&choice.file)));
        let (file, original) = (choice.file.clone(), choice.original.clone());
        let standing = match choice.below_multus {
            true => Standing::BelowMultus { file, original },
            false => Standing::Chained { file, original },
        };
        Plan { steps, standing }
    }

    /// Leaves the copy that runtimes load, if its original is still there.
    fn keep(&self, why: Why) -> Plan {
        let kept = self.ours.iter().find_map(|file| {
            let network = usable(file).ok().filter(Network::has_ours)?;
            let original = network.copy_of()?;
            let stands = self.others.iter().any(|other| other.name == original);
            stands.then(|| (file.name.clone(), original))
        });
        let steps = self.remove_all_but(kept.as_ref().map(|(file, _)| file.as_str()));
        let standing = match kept {
            Some((file, original)) => Standing::Kept {
                file,
                original,
                why,
            },
            None => Standing::Waiting(why),
        };
        Plan { steps, standing }
    }

    fn write(&self, name: &str, text: String) -> Vec<Step> {
        let same =
            |file: &&ConfFile| file.name == name && file.content.as_deref() == Ok(text.as_bytes());
        if self.ours.iter().any(same) {
            return vec![];
        }
        let name = name.to_owned();
        vec![Step::Write { name, text }]
    }

    fn remove_all_but(&self, kept: Option<&str>) -> Vec<Step> {
        self.ours
            .iter()
            .filter(|file| Some(file.name.as_str()) != kept)
            .map(|file| Step::Remove {
                name: file.name.clone(),
            })
            .collect()
    }
}

/// Ours has one of our names and the marker, or one of our names and no sense at all (a power cut
/// on a file system that reorders).
fn is_ours(file: &ConfFile) -> bool {
    let named = file.name == MULTUS_NAME || NAMES.contains(&file.name.as_str());
    let content = file.content.as_deref().unwrap_or_default();
    named && Network::parse(&file.name, content).map_or(true, |network| network.copy_of().is_some())
}

fn usable(file: &ConfFile) -> Result<Network, Standing> {
    let content = file.content.as_ref();
    content
        .map_err(Clone::clone)
        .and_then(|text| Network::parse(&file.name, text))
        .map_err(|reason| {
            let file = file.name.clone();
            Standing::Waiting(Why::Broken { file, reason })
        })
}

fn unusable(file: &ConfFile, reason: String) -> Standing {
    Standing::Waiting(Why::Unusable {
        file: file.name.clone(),
        reason,
    })
}

fn sorts_first(file: &ConfFile) -> Standing {
    let file = file.name.clone();
    Standing::Waiting(Why::SortsFirst { file })
}
