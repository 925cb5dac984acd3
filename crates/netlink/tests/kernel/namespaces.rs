//! Opening namespaces and running code inside.

use crate::sandbox::Sandbox;
use podrail_netlink::{NetNs, NetNsError, Rtnl};

#[test]
fn what_is_no_network_namespace_is_told_apart() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let gone = NetNs::open("/run/netns/podrail-never-there").unwrap_err();
    assert!(matches!(gone, NetNsError::Missing { .. }), "{gone}");
    assert_eq!(
        gone.to_string(),
        "network namespace /run/netns/podrail-never-there: does not exist"
    );
    let below_a_file = NetNs::open("/etc/passwd/x").unwrap_err();
    assert!(matches!(below_a_file, NetNsError::Missing { .. }));
    for other in [
        "/etc/passwd",
        "/etc",
        "/dev/null",
        "/proc/self/ns/mnt",
        "/proc/self/ns/user",
    ] {
        let error = NetNs::open(other).unwrap_err();
        assert!(
            matches!(error, NetNsError::NotANetNs { .. }),
            "{other}: {error}"
        );
    }
    assert!(NetNs::open(sandbox.path()).is_ok());
}

#[test]
fn only_the_thread_that_runs_moves() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let before = NetNs::current().unwrap().id();
    let namespace = sandbox.netns();
    let inside = namespace.run(|| NetNs::current().unwrap().id()).unwrap();
    assert_eq!(inside, namespace.id());
    assert_ne!(inside, before);
    assert_eq!(NetNs::current().unwrap().id(), before);
    assert_eq!(inside, NetNs::open(sandbox.path()).unwrap().id());
}

#[test]
fn proc_sys_is_the_namespaces() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let key = "/proc/sys/net/ipv4/conf/all/rp_filter";
    sandbox
        .netns()
        .run(|| std::fs::write(key, "2"))
        .unwrap()
        .unwrap();
    assert_eq!(sandbox.sysctl("net/ipv4/conf/all/rp_filter"), "2");
    assert_eq!(sandbox.rtnl().all_rp_filter().unwrap(), 2);
    sandbox
        .netns()
        .run(|| std::fs::write(key, "0"))
        .unwrap()
        .unwrap();
    assert_eq!(sandbox.rtnl().all_rp_filter().unwrap(), 0);
}

#[test]
#[should_panic(expected = "from inside")]
fn a_panic_goes_on_in_the_caller() {
    NetNs::current()
        .unwrap()
        .run(|| panic!("from inside"))
        .unwrap();
}

#[test]
fn a_namespace_lives_as_long_as_its_handle() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    sandbox.ip("link set lo alias marked");
    let namespace = sandbox.netns();
    drop(sandbox);
    let links = Rtnl::open_in(&namespace).unwrap().links().unwrap();
    assert_eq!(links[0].alias.as_deref(), Some("marked"));
}
