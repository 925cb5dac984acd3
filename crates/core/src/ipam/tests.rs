//! Pools: good ones by their blocks, bad ones by their faults, allocation against a naive model.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn settings(subnets: &[&str], block_size: u32, block: u32) -> PoolSettings {
    PoolSettings {
        name: "rails".into(),
        subnets: subnets.iter().map(|net| net.parse().unwrap()).collect(),
        block_size: Some(block_size),
        block,
        exclude: vec![],
        gateways: vec![],
    }
}

fn pool(subnets: &[&str], block_size: u32, block: u32) -> Pool {
    Pool::new("pool", &settings(subnets, block_size, block)).unwrap()
}

fn faults(settings: &PoolSettings) -> Vec<(String, String)> {
    let faults = Pool::new("pool", settings).unwrap_err().0;
    faults
        .into_iter()
        .map(|fault| (fault.path, fault.text))
        .collect()
}

fn range(pool: &Pool, family: Family) -> String {
    let (first, last) = pool.block_range(family).unwrap();
    format!("{first}-{last}")
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Allocation where nothing was freed so far.
fn first_round(
    pool: &Pool,
    used: &BTreeSet<IpAddr>,
    cursors: Cursors,
    n: usize,
) -> Result<Allocation, Exhausted> {
    let history = History {
        used,
        freed: &[],
        cursors,
    };
    allocate(pool, history, n)
}

fn addresses(found: &Allocation) -> Vec<IpAddr> {
    found.slots.iter().flat_map(Addresses::iter).collect()
}

#[test]
fn blocks_start_at_the_first_usable_address() {
    let check = |net: &str, size, block, expected: &str, fit: u128| {
        let pool = pool(&[net], size, block);
        let family = pool.families().next().unwrap();
        assert_eq!(range(&pool, family), expected, "{net}");
        assert_eq!(pool.blocks_that_fit(), fit, "{net}");
        assert_eq!(pool.subnet(family).unwrap().to_string(), net);
    };
    check("10.239.255.0/24", 32, 0, "10.239.255.1-10.239.255.32", 7);
    check("10.239.255.0/24", 32, 1, "10.239.255.33-10.239.255.64", 7);
    check("10.239.255.0/24", 32, 6, "10.239.255.193-10.239.255.224", 7);
    check("10.239.255.0/24", 254, 0, "10.239.255.1-10.239.255.254", 1);
    check("10.0.0.0/30", 1, 1, "10.0.0.2-10.0.0.2", 2);
    check("10.0.0.0/31", 1, 1, "10.0.0.1-10.0.0.1", 2);
    check("10.0.0.7/32", 1, 0, "10.0.0.7-10.0.0.7", 1);
    check("fd00::/64", 32, 0, "fd00::1-fd00::20", (1 << 59) - 1);
    check(
        "fd00::/64",
        u32::MAX,
        u32::MAX,
        "fd00::ffff:fffe:0:2-fd00::ffff:ffff:0:0",
        u128::from(u64::MAX) / u128::from(u32::MAX),
    );
    check("fd00::/127", 1, 0, "fd00::-fd00::", 2);
    check("fd00::9/128", 1, 0, "fd00::9-fd00::9", 1);
    check("fd00::/126", 3, 0, "fd00::1-fd00::3", 1);
}

#[test]
fn without_a_block_size_the_block_is_the_subnet() {
    let mut whole = settings(&["10.1.0.0/24", "fd00::/64"], 1, 0);
    whole.block_size = None;
    let whole = Pool::new("pool", &whole).unwrap();
    assert_eq!(range(&whole, Family::V4), "10.1.0.1-10.1.0.254");
    assert_eq!(
        range(&whole, Family::V6),
        "fd00::1-fd00::ffff:ffff:ffff:ffff"
    );
    assert_eq!(whole.blocks_that_fit(), 1);
}

#[test]
fn the_eighth_node_hears_that_seven_fit() {
    let found = faults(&settings(&["10.239.255.0/24"], 32, 7));
    let [(path, text)] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(path, "pool.block");
    assert!(
        text.contains("7 nodes fit") && text.contains("0 to 6"),
        "{text}"
    );
}

#[test]
fn every_fault_is_reported_with_its_place() {
    let mut bad = settings(&["10.0.0.0/24"], 0, 0);
    bad.name = "Rails!".into();
    bad.subnets.push("10.1.0.0/24".parse().unwrap());
    bad.exclude = [
        "10.0.0.9-10.0.0.3",
        "10.0.0.7",
        "x",
        "10.0.0.1-fd00::1",
        "10.0.0.9/24",
    ]
    .map(String::from)
    .to_vec();
    bad.gateways = vec![ip("10.0.0.0"), ip("10.0.0.1")];
    let paths: Vec<_> = faults(&bad).into_iter().map(|(path, _)| path).collect();
    let expected = [
        "pool.name",
        "pool.subnets[1]",
        "pool.exclude[0]",
        "pool.exclude[1]",
        "pool.exclude[2]",
        "pool.exclude[3]",
        "pool.exclude[4]",
        "pool.gateways[0]",
        "pool.gateways[1]",
        "pool.blockSize",
    ];
    assert_eq!(paths, expected);
}

/// One change to a good pool makes one fault.
fn refused(path: &str, words: &str, change: impl Fn(&mut PoolSettings)) {
    let mut bad = settings(&["10.0.0.0/24"], 32, 0);
    change(&mut bad);
    let found = faults(&bad);
    let [(at, text)] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(at, path);
    assert!(text.contains(words), "{text:?} lacks {words:?}");
}

#[test]
fn bad_subnets_and_blocks() {
    refused("pool.subnets", "required", |p| p.subnets = vec![]);
    refused("pool.blockSize", "1 to 254", |p| p.block_size = Some(255));
    refused("pool.block", "0 to 6", |p| p.block = 7);
    let subnet = |net: &str, words| {
        refused("pool.subnets[0]", words, |p| {
            p.subnets = vec![net.parse().unwrap()];
        });
    };
    subnet("10.0.0.5/24", "10.0.0.0/24");
    for net in [
        "127.0.0.0/16",
        "0.0.0.0/0",
        "239.1.0.0/16",
        "255.255.255.0/24",
        "ff02::/64",
    ] {
        subnet(net, "unicast");
    }
    for net in ["::/0", "::/64", "::ffff:10.0.0.0/120"] {
        subnet(net, "unicast");
    }
}

#[test]
fn bad_exclusions_and_gateways() {
    let exclude = |path, words, texts: &[&str]| {
        refused(path, words, |p| {
            p.exclude = texts.iter().map(ToString::to_string).collect();
        });
    };
    exclude("pool.exclude[0]", "10.0.0.0-10.0.0.255", &["10.0.1.1"]);
    exclude(
        "pool.exclude[1]",
        "without a subnet",
        &["10.0.0.1", "fd00::1"],
    );
    exclude(
        "pool.exclude[0]",
        "before it starts",
        &["10.0.0.5-10.0.0.1"],
    );
    let all = ["10.0.0.0/27", "10.0.0.32"];
    exclude("pool.exclude", "block 0 (10.0.0.1-10.0.0.32)", &all);
    let gateways = |path, words, texts: &[&str]| {
        refused(path, words, |p| {
            p.gateways = texts.iter().map(|text| ip(text)).collect();
        });
    };
    gateways("pool.gateways[0]", "10.0.0.1-10.0.0.254", &["10.0.0.255"]);
    gateways(
        "pool.gateways[1]",
        "one for each",
        &["10.0.0.1", "10.0.0.2"],
    );
}

#[test]
fn a_huge_block_is_never_enumerated() {
    let mut huge = settings(&["fd00::/16"], u32::MAX, u32::MAX);
    huge.exclude = vec!["fd00::/17".into()];
    let pool = Pool::new("pool", &huge);
    let text = pool.unwrap_err().to_string();
    assert!(text.contains("every address of block 4294967295"), "{text}");
    huge.block = 0;
    huge.exclude = vec!["fd00::2-fd00::ffff:fffd".into()];
    let pool = Pool::new("pool", &huge).unwrap();
    let found = first_round(&pool, &BTreeSet::new(), Cursors::default(), 3).unwrap();
    assert_eq!(
        addresses(&found),
        ["fd00::1", "fd00::ffff:fffe", "fd00::ffff:ffff"].map(ip)
    );
}

#[test]
fn exhaustion_names_pool_family_and_numbers() {
    let mut parts = settings(&["10.239.255.0/24"], 32, 0);
    parts.gateways = vec![ip("10.239.255.1")];
    parts.exclude = vec!["10.239.255.2".into()];
    let pool = Pool::new("pool", &parts).unwrap();
    let used = (2..=30).map(|i| ip(&format!("10.239.255.{i}"))).collect();
    let cursors = Cursors::default();
    let two = first_round(&pool, &used, cursors, 2).unwrap();
    assert_eq!(two.cursors.v4, Some(Ipv4Addr::new(10, 239, 255, 32)));
    let error = first_round(&pool, &used, cursors, 3).unwrap_err();
    assert_eq!((error.used, error.total, error.asked), (28, 30, 3));
    let text = error.to_string();
    assert!(text.contains("rails") && text.contains("28 of 30") && text.contains("IPv4"));
    assert!(error.hint().contains("rails"));
}

#[test]
fn both_families_or_nothing() {
    let pool = pool(&["10.0.0.0/30", "fd00::/126"], 2, 0);
    let used = BTreeSet::from([ip("fd00::1")]);
    let found = first_round(&pool, &used, Cursors::default(), 1).unwrap();
    assert_eq!(found.slots[0].v4, Some(Ipv4Addr::new(10, 0, 0, 1)));
    assert_eq!(found.slots[0].v6, Some("fd00::2".parse().unwrap()));
    let error = first_round(&pool, &used, Cursors::default(), 2).unwrap_err();
    assert_eq!(error.family, Family::V6);
}

#[test]
fn nothing_asked_changes_nothing() {
    let cursors = Cursors {
        v4: Some(Ipv4Addr::new(10, 0, 0, 2)),
        v6: None,
    };
    let none = first_round(&pool(&["10.0.0.0/30"], 2, 0), &BTreeSet::new(), cursors, 0).unwrap();
    assert_eq!((none.slots.len(), none.cursors), (0, cursors));
}

/// Next-fit from one cursor would give `.3` back at once.
#[test]
fn an_address_freed_just_ahead_of_the_cursor_comes_back_last() {
    let pool = pool(&["10.0.0.0/29"], 5, 0);
    let used = BTreeSet::from([ip("10.0.0.2")]);
    let freed = [ip("10.0.0.1"), ip("10.0.0.3")];
    let history = History {
        used: &used,
        freed: &freed,
        cursors: Cursors {
            v4: Some(Ipv4Addr::new(10, 0, 0, 2)),
            v6: None,
        },
    };
    let found = allocate(&pool, history, 4).unwrap();
    let expected = ["10.0.0.4", "10.0.0.5", "10.0.0.1", "10.0.0.3"].map(ip);
    assert_eq!(addresses(&found), expected);
    let last_new = Some(Ipv4Addr::new(10, 0, 0, 5));
    assert_eq!(found.cursors.v4, last_new, "old addresses move no cursor");
    assert_eq!(allocate(&pool, history, 5).unwrap_err().used, 1);
}

/// The other family, another pool's, excluded, in use, twice: none of it is handed out.
#[test]
fn what_was_freed_elsewhere_is_passed_over() {
    let mut parts = settings(&["10.0.0.0/29"], 5, 0);
    parts.exclude = vec!["10.0.0.4".into()];
    let pool = Pool::new("pool", &parts).unwrap();
    let texts = ["10.0.0.6", "fd00::1", "10.0.0.4", "10.0.0.2", "10.0.0.5"];
    let mut freed = texts.map(ip).to_vec();
    freed.extend(freed.clone());
    let history = History {
        used: &BTreeSet::from([ip("10.0.0.2"), ip("10.0.0.6")]),
        freed: &freed,
        cursors: Cursors::default(),
    };
    let found = allocate(&pool, history, 3).unwrap();
    assert_eq!(
        addresses(&found),
        ["10.0.0.1", "10.0.0.3", "10.0.0.5"].map(ip)
    );
    assert_eq!(allocate(&pool, history, 4).unwrap_err().total, 4);
}

#[test]
fn an_edit_tells_which_leases_it_would_cut() {
    let leased = BTreeSet::from([ip("10.0.0.1"), ip("10.0.0.9"), ip("fd00::1")]);
    let cut = pool(&["10.0.0.0/24"], 8, 0).cut_off(&leased);
    assert_eq!(cut, [ip("10.0.0.9"), ip("fd00::1")]);
}

/// What a pool may hand out, by enumerating its subnet.
fn naive(net: IpNet, parts: &PoolSettings) -> Vec<IpAddr> {
    let whole: Vec<IpAddr> = match net {
        IpNet::V4(net) => net.hosts().map(IpAddr::V4).collect(),
        IpNet::V6(net) => {
            let base = u128::from(net.network());
            let count = 1_u128 << (128 - net.prefix_len());
            let skip = u128::from(net.prefix_len() < 127);
            (skip..count)
                .map(|i| IpAddr::V6((base + i).into()))
                .collect()
        }
    };
    let size = parts.block_size.unwrap() as usize;
    let excluded = |address: &IpAddr| {
        parts.gateways.contains(address)
            || parts.exclude.iter().any(|text| match text.split_once('-') {
                Some((first, last)) => (ip(first)..=ip(last)).contains(address),
                None => text
                    .parse::<IpNet>()
                    .map_or_else(|_| ip(text) == *address, |net| net.contains(address)),
            })
    };
    let block = whole.chunks_exact(size).nth(parts.block as usize);
    let block = block.unwrap_or_default().iter().copied();
    block.filter(|address| !excluded(address)).collect()
}

fn small_net() -> impl Strategy<Value = IpNet> {
    prop_oneof![
        (24_u8..=32, any::<u8>())
            .prop_map(|(len, low)| (Ipv4Addr::new(10, 1, 2, low), len))
            .prop_map(|(address, len)| IpNet::new(address.into(), len).unwrap().trunc()),
        (120_u8..=128, any::<u8>())
            .prop_map(|(len, low)| (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, low.into()), len))
            .prop_map(|(address, len)| IpNet::new(address.into(), len).unwrap().trunc()),
    ]
}

/// Address of a subnet by number, wrapping.
fn nth(net: IpNet, number: u8) -> IpAddr {
    match (net.network(), net.max_prefix_len() - net.prefix_len()) {
        (IpAddr::V4(base), bits) => IpAddr::V4(Ipv4Addr::from_bits(
            base.to_bits() + u32::from(number) % (1 << bits),
        )),
        (IpAddr::V6(base), bits) => IpAddr::V6(Ipv6Addr::from_bits(
            base.to_bits() + u128::from(number) % (1 << bits),
        )),
    }
}

prop_compose! {
    fn some_settings()(
        net in small_net(),
        block_size in 1_u32..40,
        block in 0_u32..8,
        ranges in prop::collection::vec((any::<u8>(), any::<u8>()), 0..4),
        gateway in prop::option::of(any::<u8>()),
    ) -> (IpNet, PoolSettings) {
        let mut parts = settings(&[&net.to_string()], block_size, block);
        for (one, other) in ranges {
            let (one, other) = (nth(net, one), nth(net, other));
            parts.exclude.push(if one < other { format!("{one}-{other}") } else { one.to_string() });
        }
        parts.gateways = gateway.map(|number| nth(net, number)).into_iter().collect();
        (net, parts)
    }
}

fn cursor(pool: &Pool, cursors: Cursors) -> Option<IpAddr> {
    match pool.families().next().unwrap() {
        Family::V4 => cursors.v4.map(IpAddr::V4),
        Family::V6 => cursors.v6.map(IpAddr::V6),
    }
}

/// A block by enumeration, and all that happened to its addresses.
struct Model {
    block: Vec<IpAddr>,
    used: BTreeSet<IpAddr>,
    /// Free again, the oldest release first; only the newest `bound` are remembered.
    freed: Vec<IpAddr>,
    bound: usize,
    /// The last one issued that was not remembered as freed.
    cursor: Option<IpAddr>,
    /// Of each free address that was leased before: what has to be issued before it.
    owed: BTreeMap<IpAddr, Owed>,
}

#[derive(Default)]
struct Owed {
    /// Free when it was released, and not issued since.
    others: BTreeSet<IpAddr>,
    /// Releases after its own.
    later: usize,
}

impl Model {
    fn new(block: Vec<IpAddr>, bound: usize) -> Self {
        let (used, freed, cursor, owed) = Default::default();
        Self {
            block,
            used,
            freed,
            bound,
            cursor,
            owed,
        }
    }

    fn history(&self, cursors: Cursors) -> History<'_> {
        let (used, freed) = (&self.used, self.freed.as_slice());
        History {
            used,
            freed,
            cursors,
        }
    }

    /// The next `n` addresses, if there are as many.
    fn expected(&self, n: usize) -> Option<Vec<IpAddr>> {
        let behind = |cursor| self.block.partition_point(|a| *a <= cursor);
        let split = self.cursor.map_or(0, behind);
        let (behind, ahead) = self.block.split_at(split);
        let known = |a: &IpAddr| self.used.contains(a) || self.freed.contains(a);
        let fresh = ahead.iter().chain(behind).filter(|a| !known(a));
        let found: Vec<_> = fresh.chain(&self.freed).take(n).copied().collect();
        (found.len() == n).then_some(found)
    }

    /// The guarantee itself, without a word of how it is reached.
    fn issue(&mut self, address: IpAddr) {
        let remembered = self.freed.contains(&address);
        if let Some(owed) = self.owed.remove(&address) {
            assert!(
                owed.others.is_empty() || (!remembered && owed.later >= self.bound),
                "{address} came back before {:?}",
                owed.others
            );
        }
        for owed in self.owed.values_mut() {
            owed.others.remove(&address);
        }
        self.freed.retain(|freed| *freed != address);
        if !remembered {
            self.cursor = Some(address);
        }
        assert!(self.used.insert(address), "{address} twice");
    }

    fn release(&mut self, place: usize) {
        let Some(address) = self.used.iter().nth(place).copied() else {
            return;
        };
        let free = self.block.iter().filter(|a| !self.used.contains(*a));
        let others = free.copied().collect();
        for owed in self.owed.values_mut() {
            owed.later += 1;
        }
        self.owed.insert(address, Owed { others, later: 0 });
        self.used.remove(&address);
        self.freed.push(address);
        let extra = self.freed.len().saturating_sub(self.bound);
        self.freed.drain(..extra);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Issue(usize),
    Release(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0_usize..6).prop_map(Step::Issue),
        3 => any::<prop::sample::Index>().prop_map(Step::Release),
    ]
}

proptest! {
    #[test]
    fn a_pool_is_what_enumeration_says((net, parts) in some_settings()) {
        let expected = naive(net, &parts);
        match Pool::new("pool", &parts) {
            Ok(pool) => {
                let none = BTreeSet::new();
                let all = first_round(&pool, &none, Cursors::default(), expected.len()).unwrap();
                prop_assert_eq!(&addresses(&all), &expected);
                let more = first_round(&pool, &none, Cursors::default(), expected.len() + 1);
                prop_assert_eq!(more.unwrap_err().total, expected.len() as u128);
                for number in 0..=255 {
                    let address = nth(net, number);
                    prop_assert_eq!(pool.hands_out(address), expected.contains(&address));
                }
            }
            // A gateway on the network address is refused although the block could do without it.
            Err(faults) => prop_assert!(
                expected.is_empty() || faults.0.iter().any(|f| f.path.contains("gateways")),
                "{}", faults
            ),
        }
    }

    /// Strict where every release is remembered; with a bound, for what is remembered.
    #[test]
    fn a_freed_address_waits_for_the_rest(
        (net, parts) in some_settings(),
        bound in prop_oneof![2 => Just(usize::MAX), 1 => 0_usize..8],
        steps in prop::collection::vec(step(), 1..240),
    ) {
        let Ok(pool) = Pool::new("pool", &parts) else { return Ok(()) };
        let mut model = Model::new(naive(net, &parts), bound);
        let mut cursors = Cursors::default();
        for step in steps {
            let n = match step {
                Step::Issue(n) => n,
                Step::Release(which) => {
                    model.release(which.index(model.used.len().max(1)));
                    continue;
                }
            };
            let found = allocate(&pool, model.history(cursors), n);
            let Some(expected) = model.expected(n) else {
                let error = found.unwrap_err();
                let numbers = (model.used.len(), model.block.len() as u128);
                prop_assert_eq!((error.used, error.total), numbers);
                continue;
            };
            let found = found.unwrap();
            prop_assert_eq!(&addresses(&found), &expected);
            expected.into_iter().for_each(|address| model.issue(address));
            cursors = found.cursors;
            prop_assert_eq!(cursor(&pool, cursors), model.cursor);
        }
    }

    #[test]
    fn one_lease_at_a_time_goes_round_the_whole_block((net, parts) in some_settings()) {
        let Ok(pool) = Pool::new("pool", &parts) else { return Ok(()) };
        let block = naive(net, &parts);
        let mut model = Model::new(block.clone(), usize::MAX);
        let mut cursors = Cursors::default();
        for round in 0..3 * block.len() {
            let found = allocate(&pool, model.history(cursors), 1).unwrap();
            let expected = block[round % block.len()];
            prop_assert_eq!(addresses(&found), [expected]);
            model.issue(expected);
            model.release(0);
            cursors = found.cursors;
        }
    }
}
