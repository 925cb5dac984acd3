//! What the kernel tells unasked.

use crate::sandbox::Sandbox;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use podrail_netlink::{Action, Event, Events};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Reads until something fits; fails with all that came instead.
fn wait_for(events: &mut Events, fits: impl Fn(&Event) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut seen = Vec::new();
    while Instant::now() < deadline {
        let mut waiting = [PollFd::new(events.as_fd(), PollFlags::POLLIN)];
        poll(&mut waiting, PollTimeout::from(200u16)).unwrap();
        seen.extend(events.read().unwrap());
        if seen.iter().any(&fits) {
            return;
        }
    }
    panic!("not among {seen:?}");
}

#[test]
fn a_link_that_goes_up_down_and_away_is_told() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut events = sandbox.netns().run(Events::links).unwrap().unwrap();
    assert_eq!(events.read().unwrap(), []);
    sandbox.ip("link add one type veth peer name two");
    sandbox.ip("link set one up");
    wait_for(
        &mut events,
        |event| matches!(event, Event::Link(link) if link.name == "one" && link.up),
    );
    sandbox.ip("link set one down");
    wait_for(
        &mut events,
        |event| matches!(event, Event::Link(link) if link.name == "one" && !link.up),
    );
    sandbox.ip("link del one");
    wait_for(
        &mut events,
        |event| matches!(event, Event::LinkGone(link) if link.name == "two"),
    );
}

#[test]
fn what_did_not_fit_is_told_as_a_loss() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut events = sandbox.netns().run(Events::links).unwrap().unwrap();
    // The receive buffer is 208 KiB by default, and an event of a link about 4 KiB of it.
    sandbox.ip("link add one type veth peer name two");
    for _ in 0..60 {
        sandbox.ip("link set one up");
        sandbox.ip("link set one down");
    }
    wait_for(&mut events, |event| *event == Event::Lost);
    sandbox.ip("link set one up");
    wait_for(
        &mut events,
        |event| matches!(event, Event::Link(link) if link.up),
    );
}

#[test]
fn an_interface_that_comes_is_told_as_a_device() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut events = sandbox.netns().run(Events::devices).unwrap().unwrap();
    sandbox.ip("link add one type veth peer name two");
    wait_for(&mut events, |event| {
        matches!(event, Event::Device(device)
            if device.action == Action::Add && device.path.ends_with("/net/one"))
    });
}
