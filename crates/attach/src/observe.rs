//! Compares a namespace with a plan.

use crate::error::AttachError;
use crate::steps::{inet_conf, new_routes, new_rules};
use podrail_core::plan::{AttachPlan, RailAttachment};
use podrail_netlink::{Address, Family, IpvlanMode, Link, NetNs, Route, Rtnl, Rule};

/// All that was read from a namespace.
struct Seen {
    links: Vec<Link>,
    addresses: Vec<Address>,
    routes: Vec<Route>,
    rules: Vec<Rule>,
}

/// Everything in which the namespace differs from the plan, each in words that name the rail.
/// Empty: all rails stand as planned. What the plan does not name is not looked at.
///
/// # Errors
/// The namespace cannot be read.
pub fn differences(plan: &AttachPlan, pod: &NetNs) -> Result<Vec<String>, AttachError> {
    let mut inside = Rtnl::open_in(pod)?;
    let mut seen = Seen {
        links: inside.links()?,
        addresses: inside.addresses()?,
        routes: inside.routes(Family::V4)?,
        rules: inside.rules(Family::V4)?,
    };
    seen.routes.extend(inside.routes(Family::V6)?);
    seen.rules.extend(inside.rules(Family::V6)?);
    Ok(plan
        .rails
        .iter()
        .flat_map(|rail| rail_differences(plan, rail, &seen))
        .collect())
}

fn rail_differences(plan: &AttachPlan, rail: &RailAttachment, seen: &Seen) -> Vec<String> {
    let name = format!("rail {} ({} on {})", rail.rail, rail.child, rail.parent);
    let Some(link) = seen
        .links
        .iter()
        .find(|link| link.name == rail.child.as_str())
    else {
        return vec![format!("{name}: the interface is missing")];
    };
    let mut found = link_differences(plan, rail, link);
    found.extend(address_differences(rail, link, seen));
    found
        .iter()
        .map(|difference| format!("{name}: {difference}"))
        .collect()
}

fn link_differences(plan: &AttachPlan, rail: &RailAttachment, link: &Link) -> Vec<String> {
    let alias = plan.alias(rail.rail).to_string();
    let mut found = Vec::new();
    let mut check = |holds: bool, what: String| {
        if !holds {
            found.push(what);
        }
    };
    let l2 = link
        .ipvlan
        .is_some_and(|ipvlan| ipvlan.mode == IpvlanMode::L2);
    check(l2, "is no IPvlan in mode L2".into());
    check(link.up, "is down".into());
    check(
        link.mtu == rail.mtu,
        format!("has MTU {} instead of {}", link.mtu, rail.mtu),
    );
    check(
        link.group == plan.group,
        format!("is in group {}", link.group),
    );
    check(
        link.alias.as_ref() == Some(&alias),
        format!("lacks the alias {alias}"),
    );
    for (setting, wanted) in inet_conf() {
        let value = link.inet_conf.as_ref().and_then(|conf| conf.get(setting));
        let holds = value == i32::try_from(wanted).ok();
        check(
            holds,
            format!("has {setting}={} instead of {wanted}", value.unwrap_or(-1)),
        );
    }
    found
}

fn address_differences(rail: &RailAttachment, link: &Link, seen: &Seen) -> Vec<String> {
    let has_address = |net| {
        seen.addresses
            .iter()
            .any(|a| a.ifindex == link.index && a.net == net)
    };
    let addresses = rail.addresses.iter().filter(|net| !has_address(**net));
    let routes = new_routes(rail, link.index).into_iter();
    let rules = new_rules(rail);
    addresses
        .map(|net| format!("lacks the address {net}"))
        .chain(
            routes
                .filter(|wanted| !seen.routes.iter().any(|route| route.is(wanted)))
                .map(|wanted| format!("lacks the route {wanted}")),
        )
        .chain(
            rules
                .filter(|wanted| !seen.rules.iter().any(|rule| rule.is(wanted)))
                .map(|wanted| format!("lacks the rule {wanted}")),
        )
        .collect()
}
