//! The steps of an attachment, in order, with the undo of each pushed before it is taken.
//!
//! Two messages go to the kernel, one per namespace: the children are made from the host's, all
//! the rest is done in the pod's. Sysctls come between them, so they stand before a link is up.

use crate::error::{AttachError, UndoFailure};
use crate::faults;
use crate::preflight::{Ground, RailGround};
use crate::teardown::{self, Target};
use podrail_core::plan::{AttachPlan, CHILD_SYSCTLS, ROUTE_PROTOCOL, RailAttachment, Sysctl};
use podrail_netlink::{
    Alias, Group, InetConf, NetNs, NewAddress, NewIpvlan, NewRoute, Refusal, Request, Rtnl,
    SourceRule,
};
use std::io;
use std::num::NonZeroU32;

/// One request, the stage that it belongs to and the rail that it is for.
struct Step<'a> {
    stage: &'static str,
    rail: &'a RailAttachment,
    request: Request<'a>,
}

/// The steps of one stage for one rail, whose child has the given index.
type StageOf<'a> = fn(&Run<'a>, &'a RailAttachment, u32) -> Vec<(&'static str, Request<'a>)>;

/// What takes a step back.
enum Undo<'a> {
    /// Rules and children of the sandbox, whichever were made.
    Remove(Target),
    /// A sysctl of the whole namespace.
    Restore(&'a Sysctl),
}

/// Why a run stopped, before undo.
enum Stop<'a> {
    Refused(&'a RailAttachment, Refusal),
    Sysctl(String, io::Error),
    NetNs(podrail_netlink::NetNsError),
    Injected(String),
}

/// One attachment in progress.
pub(crate) struct Run<'a> {
    plan: &'a AttachPlan,
    ground: &'a Ground,
    pod: &'a NetNs,
    undo: Vec<Undo<'a>>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(plan: &'a AttachPlan, ground: &'a Ground, pod: &'a NetNs) -> Self {
        Self {
            plan,
            ground,
            pod,
            undo: vec![],
        }
    }

    /// Takes all steps; on a fault goes back to the start.
    pub(crate) fn all(mut self, host: &mut Rtnl, inside: &mut Rtnl) -> Result<(), AttachError> {
        match self.forward(host, inside) {
            Ok(()) => Ok(()),
            Err(stop) => {
                let left = self.back();
                Err(error(stop, left))
            }
        }
    }

    fn forward(&mut self, host: &mut Rtnl, inside: &mut Rtnl) -> Result<(), Stop<'a>> {
        self.undo.push(Undo::Remove(Target::of(self.plan)));
        send(host, &self.create_steps())?;
        for sysctl in &self.plan.namespace_sysctls {
            self.undo.push(Undo::Restore(sysctl));
        }
        self.set_sysctls()?;
        send(inside, &self.pod_steps())
    }

    /// Undoes in reverse order; goes on after a failure and lists all of them.
    fn back(self) -> Vec<UndoFailure> {
        let mut left = Vec::new();
        for undo in self.undo.into_iter().rev() {
            match undo {
                Undo::Restore(sysctl) => {
                    left.extend(teardown::restore(sysctl, &self.plan.sandbox, self.pod).err());
                }
                Undo::Remove(target) => left.extend(teardown::remove(&target, self.pod).failures),
            }
        }
        left
    }

    fn rails(&self) -> impl Iterator<Item = (&'a RailAttachment, &'a RailGround)> + use<'a> {
        self.plan.rails.iter().zip(&self.ground.rails)
    }

    fn create_steps(&self) -> Vec<Step<'a>> {
        // A hash below 0x6000_0000 with a fixed upper part: never 0.
        let group = Group(NonZeroU32::new(self.plan.group).unwrap_or(NonZeroU32::MAX));
        self.rails()
            .map(|(rail, ground)| {
                let request = Request::CreateIpvlan(NewIpvlan {
                    name: &rail.child,
                    parent: ground.parent,
                    target: self.pod,
                    index: Some(ground.child),
                    mtu: rail.mtu,
                    group,
                });
                Step {
                    stage: "create",
                    rail,
                    request,
                }
            })
            .collect()
    }

    /// Sysctls that netlink cannot set: those of the namespace, and those of IPv6.
    fn set_sysctls(&self) -> Result<(), Stop<'a>> {
        let ipv6 = self.plan.rails.iter().map(RailAttachment::ipv6_sysctl);
        let all: Vec<Sysctl> = self
            .plan
            .namespace_sysctls
            .iter()
            .cloned()
            .chain(ipv6)
            .collect();
        self.pod
            .run(|| write_all(&all))
            .unwrap_or_else(|error| Err(Stop::NetNs(error)))
    }

    /// Stage by stage over all rails: every link is ready before the first comes up.
    fn pod_steps(&self) -> Vec<Step<'a>> {
        let stages: [StageOf<'a>; 4] = [Self::settings, Self::address, Self::routes, Self::rules];
        stages
            .iter()
            .flat_map(|stage| {
                self.rails()
                    .map(move |(rail, ground)| (stage, rail, ground))
            })
            .flat_map(|(stage, rail, ground)| {
                stage(self, rail, ground.child.get())
                    .into_iter()
                    .map(move |(stage, request)| Step {
                        stage,
                        rail,
                        request,
                    })
            })
            .collect()
    }

    fn settings(&self, rail: &'a RailAttachment, link: u32) -> Vec<(&'static str, Request<'a>)> {
        let text = self.plan.alias(rail.rail).to_string();
        // At most 143 bytes of checked ids: always an alias.
        let alias = Alias::parse(&text).ok();
        let alias = alias.map(|alias| {
            (
                "alias",
                Request::SetAlias {
                    link: link.into(),
                    alias,
                },
            )
        });
        let conf = Request::SetInetConf {
            link: link.into(),
            values: inet_conf(),
        };
        alias.into_iter().chain([("sysctl", conf)]).collect()
    }

    fn address(&self, rail: &'a RailAttachment, link: u32) -> Vec<(&'static str, Request<'a>)> {
        let add = |net: &ipnet::IpNet| Request::AddAddress(NewAddress { link, net: *net });
        let up = ("up", Request::SetUp(link.into()));
        let addresses = rail.addresses.iter().map(|net| ("address", add(net)));
        std::iter::once(up).chain(addresses).collect()
    }

    fn routes(&self, rail: &'a RailAttachment, link: u32) -> Vec<(&'static str, Request<'a>)> {
        new_routes(rail, link)
            .into_iter()
            .map(|route| ("route", Request::AddRoute(route)))
            .collect()
    }

    fn rules(&self, rail: &'a RailAttachment, _link: u32) -> Vec<(&'static str, Request<'a>)> {
        new_rules(rail)
            .map(|rule| ("rule", Request::AddRule(rule)))
            .collect()
    }
}

/// Routes of a rail's table as the kernel takes them.
pub(crate) fn new_routes(rail: &RailAttachment, link: u32) -> Vec<NewRoute> {
    rail.routes()
        .into_iter()
        .map(|route| NewRoute {
            table: rail.table(),
            dest: route.to,
            oif: link,
            prefsrc: Some(route.source),
            gateway: route.via,
            protocol: ROUTE_PROTOCOL,
        })
        .collect()
}

/// Rules of a rail as the kernel takes them.
pub(crate) fn new_rules(rail: &RailAttachment) -> impl Iterator<Item = SourceRule> {
    rail.rule_sources().map(|from| SourceRule {
        from,
        table: rail.table(),
        priority: rail.rule_priority(),
        protocol: ROUTE_PROTOCOL,
    })
}

/// The plan's IPv4 settings of a child, by number.
pub(crate) fn inet_conf() -> Vec<(InetConf, u32)> {
    let value = |setting: InetConf| {
        let (_, value) = CHILD_SYSCTLS
            .iter()
            .find(|(name, _)| *name == setting.name())?;
        Some((setting, value.parse().ok()?))
    };
    InetConf::ALL.into_iter().filter_map(value).collect()
}

fn write_all<'a>(sysctls: &[Sysctl]) -> Result<(), Stop<'a>> {
    for (number, sysctl) in sysctls.iter().enumerate() {
        crate::sysctl::write(sysctl, &sysctl.value)
            .map_err(|error| Stop::Sysctl(sysctl.path.clone(), error))?;
        faults::reach("file", number).map_err(Stop::Injected)?;
    }
    Ok(())
}

/// Sends the steps in one message. The kernel goes on after a refusal; undo then takes back
/// whatever was done.
fn send<'a>(rtnl: &mut Rtnl, steps: &[Step<'a>]) -> Result<(), Stop<'a>> {
    let fault = fault_in(steps);
    let end = fault.map_or(steps.len(), |(at, ..)| at + 1);
    let wanted = steps.get(..end).unwrap_or(steps);
    let requests: Vec<Request<'a>> = wanted.iter().map(|step| step.request.clone()).collect();
    let first_refusal = wanted
        .iter()
        .zip(rtnl.apply(&requests))
        .find_map(|(step, answer)| Some(Stop::Refused(step.rail, answer.err()?)));
    if let Some(stop) = first_refusal {
        return Err(stop);
    }
    match fault {
        None => Ok(()),
        Some((_, stage, number, action)) => {
            Err(Stop::Injected(faults::strike(action, stage, number)))
        }
    }
}

/// The step behind which a test wants a fault.
fn fault_in(steps: &[Step<'_>]) -> Option<(usize, &'static str, usize, faults::Action)> {
    steps.iter().enumerate().find_map(|(at, step)| {
        let number = steps
            .iter()
            .take(at)
            .filter(|other| other.stage == step.stage)
            .count();
        faults::wanted(step.stage, number).map(|action| (at, step.stage, number, action))
    })
}

fn error(stop: Stop<'_>, left: Vec<UndoFailure>) -> AttachError {
    match stop {
        Stop::Refused(rail, source) => AttachError::Step {
            rail: rail.rail,
            parent: rail.parent.clone(),
            child: rail.child.clone(),
            left,
            source,
        },
        Stop::Sysctl(path, source) => AttachError::Sysctl { path, left, source },
        Stop::NetNs(source) => AttachError::NetNs(source),
        Stop::Injected(point) => AttachError::Injected { point, left },
    }
}
