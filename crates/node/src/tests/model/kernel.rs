//! A kernel that keeps namespaces with their interfaces, addresses and rules, one effect at a time.

use crate::error::NodeError;
use crate::kernel::Kernel;
use podrail_attach::{AttachError, Problem, Target, TeardownError, UndoFailure, faults};
use podrail_core::ids::SandboxId;
use podrail_core::plan::{Alias, AttachPlan, RailAttachment, link_group};
use podrail_netlink::SourceRule;
use podrail_store::{BootId, NetnsId};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;

/// What `net.ipv4.conf.all.rp_filter` says in a new namespace.
pub(super) const RP_FILTER: &str = "1";

/// The simulated kernel; a clone is the same one.
#[derive(Debug, Clone)]
pub(super) struct Sim(Rc<RefCell<Host>>);

#[derive(Debug)]
struct Host {
    boot: u32,
    netns: BTreeMap<(u64, u64), Rc<Netns>>,
    /// Interfaces of rails, and whether each has a link.
    parents: BTreeMap<String, bool>,
}

/// A network namespace.
#[derive(Debug)]
pub(super) struct Netns {
    pub(super) id: NetnsId,
    pub(super) inside: RefCell<Inside>,
}

/// What is in a namespace.
#[derive(Debug, Clone)]
pub(super) struct Inside {
    pub(super) children: Vec<Child>,
    pub(super) rules: Vec<SourceRule>,
    pub(super) rp_filter: String,
}

/// An IPvlan child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Child {
    pub(super) name: String,
    parent: String,
    pub(super) group: u32,
    pub(super) alias: Option<String>,
    up: bool,
    pub(super) addresses: Vec<IpAddr>,
    routes: usize,
}

impl Child {
    /// As `podrail_attach` tells: by the alias, or by the group as long as there is no alias.
    pub(super) fn is_of(&self, sandbox: &SandboxId) -> bool {
        match &self.alias {
            Some(alias) => Alias::parse(alias).is_ok_and(|alias| alias.sandbox == *sandbox),
            None => self.group == link_group(sandbox),
        }
    }
}

impl Sim {
    pub(super) fn new(parents: impl Iterator<Item = String>) -> Self {
        Self(Rc::new(RefCell::new(Host {
            boot: 1,
            netns: BTreeMap::new(),
            parents: parents.map(|name| (name, true)).collect(),
        })))
    }

    /// Makes the file at a path a namespace.
    pub(super) fn make(&self, path: &Path) {
        let id = file_id(path).unwrap();
        let inside = RefCell::new(Inside {
            children: vec![],
            rules: vec![],
            rp_filter: RP_FILTER.into(),
        });
        let netns = Rc::new(Netns { id, inside });
        self.0.borrow_mut().netns.insert((id.dev, id.ino), netns);
    }

    /// Takes the name of a namespace away; it is gone when nobody has it open.
    pub(super) fn destroy(&self, id: NetnsId) {
        self.0.borrow_mut().netns.remove(&(id.dev, id.ino));
    }

    pub(super) fn reboot(&self) {
        let mut host = self.0.borrow_mut();
        host.boot += 1;
        host.netns.clear();
        host.parents.values_mut().for_each(|up| *up = true);
    }

    pub(super) fn all(&self) -> Vec<Rc<Netns>> {
        self.0.borrow().netns.values().cloned().collect()
    }

    pub(super) fn has(&self, id: NetnsId) -> bool {
        self.0.borrow().netns.contains_key(&(id.dev, id.ino))
    }

    /// Whether an interface has a link; none if it is gone.
    pub(super) fn link(&self, parent: &str) -> Option<bool> {
        self.0.borrow().parents.get(parent).copied()
    }

    /// Gives an interface a link or takes it; or takes the interface, and its children with it.
    pub(super) fn set_link(&self, parent: &str, link: Option<bool>) {
        let mut host = self.0.borrow_mut();
        match link {
            Some(up) => drop(host.parents.insert(parent.to_owned(), up)),
            None => drop(host.parents.remove(parent)),
        }
        if link.is_none() {
            for netns in host.netns.values() {
                let mut inside = netns.inside.borrow_mut();
                inside.children.retain(|child| child.parent != parent);
            }
        }
    }

    fn survey(&self, plan: &AttachPlan, netns: &Netns) -> Result<(), AttachError> {
        let problem = |rail: &RailAttachment| {
            let parent = || rail.parent.clone();
            match self.link(rail.parent.as_str()) {
                None => return Some(Problem::NoParent(parent())),
                Some(false) => return Some(Problem::ParentDown(parent())),
                Some(true) => {}
            }
            let inside = netns.inside.borrow();
            let mut children = inside.children.iter();
            let taken = children.any(|child| child.name == rail.child.as_str());
            taken.then(|| Problem::NameTaken(rail.child.clone()))
        };
        let mut rails = plan.rails.iter();
        let found = rails.find_map(|rail| Some((rail.rail, problem(rail)?)));
        match found {
            Some((rail, problem)) => Err(AttachError::NotPossible { rail, problem }),
            None => Ok(()),
        }
    }

    /// In the order of the real steps, with a fault point behind each; the text of the point where
    /// it stopped.
    fn forward(&self, plan: &AttachPlan, netns: &Netns) -> Result<(), String> {
        for (at, rail) in plan.rails.iter().enumerate() {
            if self.link(rail.parent.as_str()).is_none() {
                return Err(format!("{} is gone", rail.parent));
            }
            netns.inside.borrow_mut().children.push(Child {
                name: rail.child.to_string(),
                parent: rail.parent.to_string(),
                group: plan.group,
                alias: None,
                up: false,
                addresses: vec![],
                routes: 0,
            });
            faults::reach("create", at)?;
        }
        netns.inside.borrow_mut().rp_filter = "0".into();
        faults::reach("file", 0)?;
        each(plan, netns, "alias", |rail, child| {
            child.alias = Some(plan.alias(rail.rail).to_string());
        })?;
        each(plan, netns, "up", |_, child| child.up = true)?;
        each(plan, netns, "address", |rail, child| {
            child.addresses = rail.rule_sources().collect();
        })?;
        each(plan, netns, "route", |rail, child| {
            child.routes = rail.routes().len();
        })?;
        for (at, rule) in Target::of(plan).rules.into_iter().enumerate() {
            netns.inside.borrow_mut().rules.push(rule);
            faults::reach("rule", at)?;
        }
        Ok(())
    }
}

/// One step for each rail; refused where the child is gone.
fn each(
    plan: &AttachPlan,
    netns: &Netns,
    stage: &'static str,
    set: impl Fn(&RailAttachment, &mut Child),
) -> Result<(), String> {
    for (at, rail) in plan.rails.iter().enumerate() {
        {
            let mut inside = netns.inside.borrow_mut();
            let mut children = inside.children.iter_mut();
            let child = children.find(|child| child.name == rail.child.as_str());
            let child = child.ok_or_else(|| format!("{} is gone", rail.child))?;
            set(rail, child);
        }
        faults::reach(stage, at)?;
    }
    Ok(())
}

impl Netns {
    /// Rules that are of the target, as `podrail_attach` tells.
    fn rules_of(&self, target: &Target) -> Vec<SourceRule> {
        let inside = self.inside.borrow();
        let ours = inside.children.iter();
        let ours = ours.filter(|child| child.is_of(&target.sandbox));
        let addresses: Vec<IpAddr> = ours.flat_map(|child| child.addresses.clone()).collect();
        let of_target =
            |rule: &&SourceRule| target.rules.contains(rule) || addresses.contains(&rule.from);
        inside.rules.iter().filter(of_target).copied().collect()
    }

    fn has_leftovers(&self, target: &Target) -> bool {
        let inside = self.inside.borrow();
        let mut children = inside.children.iter();
        children.any(|child| child.is_of(&target.sandbox)) || !self.rules_of(target).is_empty()
    }

    /// Rule by rule, then all children at once; how many there were.
    fn remove(&self, target: &Target) -> Result<usize, UndoFailure> {
        let rules = self.rules_of(target);
        for (at, rule) in rules.iter().enumerate() {
            self.inside.borrow_mut().rules.retain(|one| one != rule);
            faults::reach("remove", at).map_err(UndoFailure::Injected)?;
        }
        let count = {
            let mut inside = self.inside.borrow_mut();
            let before = inside.children.len();
            inside
                .children
                .retain(|child| !child.is_of(&target.sandbox));
            before - inside.children.len()
        };
        faults::reach("removed", 0).map_err(UndoFailure::Injected)?;
        Ok(count)
    }

    fn restore(&self, target: &Target) {
        let mut inside = self.inside.borrow_mut();
        let mut children = inside.children.iter();
        if children.any(|child| !child.is_of(&target.sandbox)) {
            return;
        }
        for previous in target.sysctls.iter().filter_map(|one| one.previous.clone()) {
            inside.rp_filter = previous;
        }
    }
}

impl Kernel for Sim {
    type Netns = Rc<Netns>;

    fn boot(&self) -> Result<BootId, NodeError> {
        let text = format!("00000000-0000-4000-8000-{:012x}", self.0.borrow().boot);
        Ok(BootId::parse(&text).unwrap())
    }

    fn open(&self, path: &Path) -> Result<Option<Rc<Netns>>, NodeError> {
        let host = self.0.borrow();
        let id = file_id(path);
        Ok(id.and_then(|id| host.netns.get(&(id.dev, id.ino)).cloned()))
    }

    fn id(&self, netns: &Rc<Netns>) -> NetnsId {
        netns.id
    }

    fn own(&self) -> Result<NetnsId, NodeError> {
        Ok(NetnsId { dev: 0, ino: 1 })
    }

    /// A process is in every namespace that is there.
    fn find(&self, id: NetnsId) -> Option<Rc<Netns>> {
        self.0.borrow().netns.get(&(id.dev, id.ino)).cloned()
    }

    fn has_any(&self, target: &Target, netns: &Rc<Netns>) -> bool {
        netns.has_leftovers(target)
    }

    fn others_than(&self, sandbox: &SandboxId) -> Result<BTreeSet<SandboxId>, NodeError> {
        let host = self.0.borrow();
        let mut others = BTreeSet::new();
        for netns in host.netns.values() {
            let inside = netns.inside.borrow();
            let aliases = inside
                .children
                .iter()
                .filter_map(|child| child.alias.as_ref());
            let owners = aliases.filter_map(|alias| Some(Alias::parse(alias).ok()?.sandbox));
            others.extend(owners.filter(|owner| owner != sandbox));
        }
        Ok(others)
    }

    fn attach(&self, plan: &AttachPlan, netns: &Rc<Netns>) -> Result<(), AttachError> {
        let target = Target::of(plan);
        if netns.has_leftovers(&target) {
            self.detach(&target, netns)?;
        }
        self.survey(plan, netns)?;
        self.forward(plan, netns).map_err(|point| {
            netns.restore(&target);
            let left = netns.remove(&target).err().into_iter().collect();
            AttachError::Injected { point, left }
        })
    }

    fn detach(&self, target: &Target, netns: &Rc<Netns>) -> Result<usize, TeardownError> {
        let removed = netns.remove(target).map_err(|failure| TeardownError {
            failures: vec![failure],
        })?;
        netns.restore(target);
        Ok(removed)
    }

    fn differences(
        &self,
        plan: &AttachPlan,
        netns: &Rc<Netns>,
    ) -> Result<Vec<String>, AttachError> {
        let inside = netns.inside.borrow();
        let rail = |rail: &RailAttachment| {
            let wanted = Child {
                name: rail.child.to_string(),
                parent: rail.parent.to_string(),
                group: plan.group,
                alias: Some(plan.alias(rail.rail).to_string()),
                up: true,
                addresses: rail.rule_sources().collect(),
                routes: rail.routes().len(),
            };
            let missing = !inside.children.contains(&wanted);
            missing.then(|| format!("rail {} is not as planned", rail.rail))
        };
        let rules = Target::of(plan).rules.into_iter();
        let rules = rules.filter(|rule| !inside.rules.contains(rule));
        let rules = rules.map(|rule| format!("the rule from {} is missing", rule.from));
        Ok(plan.rails.iter().filter_map(rail).chain(rules).collect())
    }
}

/// The identity that the file at a path has as a namespace.
pub(super) fn file_id(path: &Path) -> Option<NetnsId> {
    let found = std::fs::metadata(path).ok()?;
    Some(NetnsId {
        dev: found.dev(),
        ino: found.ino(),
    })
}
