//! Freed addresses: their order, across boots and pools, and how many are remembered.

use super::*;
use rusqlite::params;
use std::net::{IpAddr, Ipv4Addr};

/// As [`Snapshot::freed`] promises.
const REMEMBERED: u32 = 4096;

fn v4(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0x0aef_0000 + number))
}

fn v4_leases(binding: &Binding) -> Vec<IpAddr> {
    let addresses = binding.leases.iter().map(|lease| lease.address);
    addresses.filter(IpAddr::is_ipv4).collect()
}

fn v4_freed(store: &Store) -> Vec<IpAddr> {
    let mut freed = store.snapshot().unwrap().freed;
    freed.retain(IpAddr::is_ipv4);
    freed
}

fn reserve(node: &Node, store: &mut Store, name: &str, count: usize) -> Vec<IpAddr> {
    v4_leases(node.reserve(store, name, count).unwrap().binding())
}

/// Next-fit from one cursor would give pod `c` what pod `b` had a moment ago.
#[test]
fn what_was_freed_a_moment_ago_comes_last() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(&state_file(&directory));
    let node = Node::new(1, 8);
    let a = reserve(&node, &mut store, "a", 4);
    let b = reserve(&node, &mut store, "b", 4);
    store.release(&sandbox("a")).unwrap();
    let a_again = reserve(&node, &mut store, "a", 2);
    assert_eq!(a_again, a[..2]);
    store.release(&sandbox("b")).unwrap();
    let c = reserve(&node, &mut store, "c", 4);
    assert_eq!(c, [&a[2..], &b[..2]].concat());
    assert_eq!(v4_freed(&store), b[2..]);
}

#[test]
fn the_order_outlives_a_boot_that_frees_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let path = state_file(&directory);
    let node = Node::new(1, 16);
    let mut store = open(&path);
    let [a, b, c] = ["a", "b", "c"].map(|name| reserve(&node, &mut store, name, 4));
    store.release(&sandbox("c")).unwrap();
    drop(store);
    let mut store = Store::open(&path, &boot(2)).unwrap().store;
    assert_eq!(v4_freed(&store), [c.clone(), a.clone(), b].concat());
    let never_issued: Vec<_> = (29..=32).map(v4).collect();
    let new = reserve(&node, &mut store, "new", 12);
    assert_eq!(new, [never_issued, c, a].concat());
}

/// A pool that gets another name keeps the order of its addresses.
#[test]
fn the_order_is_of_addresses_whatever_their_pool() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(&state_file(&directory));
    let node = Node::new(1, 8);
    let a = reserve(&node, &mut store, "a", 6);
    store.release(&sandbox("a")).unwrap();
    let other = "UPDATE freed SET pool = 'old-name'; DELETE FROM cursors";
    store.conn.execute_batch(other).unwrap();
    let b = reserve(&node, &mut store, "b", 4);
    assert_eq!(b, [&[v4(15), v4(16)], &a[..2]].concat());
    store.release(&sandbox("b")).unwrap();
    assert_eq!(v4_freed(&store), [&a[2..], &b].concat());
}

#[test]
fn the_newest_releases_of_each_pool_and_family_are_remembered() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(&state_file(&directory));
    let node = Node::new(1, 32);
    let fill = |pool: &str, first: u32| {
        let sql = "INSERT INTO freed (address, pool, family) VALUES (?1, ?2, 4)";
        for number in first..first + REMEMBERED {
            let address = v4(number).to_string();
            store.conn.execute(sql, params![address, pool]).unwrap();
        }
    };
    store.conn.execute_batch("BEGIN").unwrap();
    fill("rails", 10_000);
    fill("other", 20_000);
    store.conn.execute_batch("COMMIT").unwrap();
    let a = reserve(&node, &mut store, "a", 3);
    store.release(&sandbox("a")).unwrap();
    let kept = (10_003..10_000 + REMEMBERED).chain(20_000..20_000 + REMEMBERED);
    let expected: Vec<_> = kept.map(v4).chain(a).collect();
    assert_eq!(v4_freed(&store), expected);
    assert_eq!(store.snapshot().unwrap().freed.len(), expected.len() + 3);
}
