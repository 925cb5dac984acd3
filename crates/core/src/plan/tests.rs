//! Plans: tables, rules, routes and names as the design gives them.

use super::*;

fn attachment(rail: u16, addresses: &[&str], gateways: &[&str]) -> RailAttachment {
    RailAttachment {
        rail: RailIndex(rail),
        parent: IfName::parse(&format!("rdma{rail}")).unwrap(),
        child: RailIndex(rail).default_interface(),
        mtu: 4220,
        addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        gateways: gateways.iter().map(|a| a.parse().unwrap()).collect(),
    }
}

fn sandbox() -> SandboxId {
    SandboxId::parse("job-1").unwrap()
}

#[test]
fn a_gateway_gives_a_default_route_in_the_rails_table_only() {
    let rail = attachment(4, &["10.239.255.5/24", "fd00::5/64"], &["10.239.255.254"]);
    let routes: Vec<String> = rail
        .routes()
        .iter()
        .map(|r| {
            format!(
                "{} via {:?} src {}",
                r.to,
                r.via.map(|v| v.to_string()),
                r.source
            )
        })
        .collect();
    assert_eq!(
        routes,
        [
            "10.239.255.0/24 via None src 10.239.255.5",
            "0.0.0.0/0 via Some(\"10.239.255.254\") src 10.239.255.5",
            "fd00::/64 via None src fd00::5",
        ]
    );
    assert_eq!((rail.table(), rail.rule_priority()), (104, 30_104));
}

#[test]
fn same_sandbox_same_plan_whatever_the_order() {
    let (a, b) = (
        attachment(0, &["10.0.0.1/24"], &[]),
        attachment(1, &["10.0.0.2/24"], &[]),
    );
    let one = AttachPlan::new(sandbox(), vec![a.clone(), b.clone()], None).unwrap();
    assert_eq!(Ok(one), AttachPlan::new(sandbox(), vec![b, a], None));
}

#[test]
fn two_rails_never_share_a_name() {
    let mut second = attachment(1, &[], &[]);
    second.child = RailIndex(0).default_interface();
    let error = AttachPlan::new(sandbox(), vec![attachment(0, &[], &[]), second], None);
    assert_eq!(
        error.unwrap_err().to_string(),
        "rails 0 and 1 would both be called net1"
    );
}

#[test]
fn the_mtu_follows_the_parent_and_never_exceeds_it() {
    let (rail, parent) = (RailIndex(3), IfName::parse("rdma3").unwrap());
    assert_eq!(
        RailAttachment::child_mtu(rail, &parent, 4220, None),
        Ok(4220)
    );
    assert_eq!(
        RailAttachment::child_mtu(rail, &parent, 4220, Some(1500)),
        Ok(1500)
    );
    let error = RailAttachment::child_mtu(rail, &parent, 4220, Some(9000)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "MTU 9000 of rail 3 is above the 4220 of its interface rdma3"
    );
}

#[test]
fn aliases_come_back_and_foreign_ones_do_not_parse() {
    let alias = Alias {
        sandbox: sandbox(),
        rail: RailIndex(15),
    };
    assert_eq!(Alias::parse(&alias.to_string()), Ok(alias));
    for foreign in [
        "",
        "podrail:",
        "podrail:a",
        "podrail:a:",
        "podrail:a:+1",
        "podrail:../x:1",
        "other:a:1",
    ] {
        assert!(Alias::parse(foreign).is_err(), "{foreign}");
    }
    let longest = Alias {
        sandbox: SandboxId::parse(&"x".repeat(128)).unwrap(),
        rail: RailIndex(u16::MAX),
    };
    // IFALIASZ is 256 with the final NUL.
    assert!(longest.to_string().len() < 256);
}

#[test]
fn groups_are_never_the_default_group_and_fit_a_signed_number() {
    for id in ["a", "job-1", "0123456789abcdef"] {
        let group = link_group(&SandboxId::parse(id).unwrap());
        assert!((0x5000_0000..0x6000_0000).contains(&group), "{group:#x}");
        assert!(is_link_group(group));
    }
    assert_ne!(
        link_group(&sandbox()),
        link_group(&SandboxId::parse("job-2").unwrap())
    );
}

#[test]
fn a_dot_in_an_interface_name_stays_in_its_path_component() {
    let mut rail = attachment(0, &[], &[]);
    rail.child = IfName::parse("net.1").unwrap();
    let path = rail.ipv6_sysctl().path;
    assert_eq!(path, "net/ipv6/conf/net.1/accept_ra");
}
