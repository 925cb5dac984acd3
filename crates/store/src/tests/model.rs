//! Random histories against a model in plain maps.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Addresses of the block in each family; three pods of four rails fill it.
const BLOCK: usize = 12;
const SHARES: u16 = 2;

#[derive(Debug, Clone)]
enum Step {
    Reserve { who: u8, other: bool, rails: usize },
    Ready { who: u8 },
    Release { who: u8 },
    Reopen,
    NewBoot,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u8..6, prop::bool::weighted(0.1), 0_usize..6)
            .prop_map(|(who, other, rails)| Step::Reserve { who, other, rails }),
        1 => (0_u8..6).prop_map(|who| Step::Ready { who }),
        3 => (0_u8..6).prop_map(|who| Step::Release { who }),
        1 => Just(Step::Reopen),
        1 => Just(Step::NewBoot),
    ]
}

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    fingerprint: String,
    state: State,
    rails: BTreeSet<(u16, u16)>,
    addresses: BTreeSet<IpAddr>,
}

#[derive(Default)]
struct Model {
    held: BTreeMap<SandboxId, Entry>,
    /// Number of the address issued last, in both families.
    last: Option<usize>,
    boot: u32,
}

fn v4(number: usize) -> IpAddr {
    let first = u32::from_be_bytes([10, 239, 0, 1]) + BLOCK as u32;
    IpAddr::V4((first + number as u32).into())
}

fn v6(number: usize) -> IpAddr {
    let first = (0xfd00_u128 << 112) + 1 + BLOCK as u128;
    IpAddr::V6((first + number as u128).into())
}

impl Model {
    fn free_rails(&self) -> Vec<(u16, u16)> {
        let taken: BTreeSet<_> = self.held.values().flat_map(|entry| &entry.rails).collect();
        let first = |rail| (0..SHARES).find(|share| !taken.contains(&(rail, *share)));
        (0..16)
            .filter_map(|rail| Some((rail, first(rail)?)))
            .collect()
    }

    fn next_addresses(&self) -> Vec<usize> {
        let taken: BTreeSet<_> = self
            .held
            .values()
            .flat_map(|entry| &entry.addresses)
            .collect();
        let start = self.last.map_or(0, |last| last + 1);
        let round = (start..start + BLOCK).map(|number| number % BLOCK);
        round
            .filter(|number| !taken.contains(&v4(*number)))
            .collect()
    }

    /// What a new reservation gets, if it can be had.
    fn reserve(&mut self, who: SandboxId, fingerprint: &str, count: usize) -> bool {
        let (mut rails, mut numbers) = (self.free_rails(), self.next_addresses());
        if rails.len() < count || numbers.len() < count {
            return false;
        }
        rails.truncate(count);
        numbers.truncate(count);
        self.last = numbers.last().copied().or(self.last);
        let entry = Entry {
            fingerprint: fingerprint.into(),
            state: State::Pending,
            rails: rails.into_iter().collect(),
            addresses: numbers.iter().flat_map(|n| [v4(*n), v6(*n)]).collect(),
        };
        self.held.insert(who, entry);
        true
    }
}

fn entries(bindings: &[Binding]) -> BTreeMap<SandboxId, Entry> {
    let entry = |binding: &Binding| Entry {
        fingerprint: binding.request.fingerprint.clone(),
        state: binding.state,
        rails: binding
            .rails
            .iter()
            .map(|rail| (rail.index.0, rail.share))
            .collect(),
        addresses: binding.leases.iter().map(|lease| lease.address).collect(),
    };
    bindings
        .iter()
        .map(|binding| (binding.request.sandbox.clone(), entry(binding)))
        .collect()
}

fn reserve(
    model: &mut Model,
    store: &mut Store,
    node: &Node,
    (who, other, rails): (u8, bool, usize),
) {
    let name = format!("pod-{who}");
    let fingerprint = if other { "other" } else { "same" };
    let request = request(&name, fingerprint);
    let found = store.reserve(&request, |held| node.choose(held, rails));
    let known = model
        .held
        .get(&request.sandbox)
        .map(|entry| entry.fingerprint.clone());
    match known {
        Some(known) if known == fingerprint => {
            assert!(matches!(found, Ok(Reserved::Existing(_))), "{found:?}");
        }
        Some(_) => assert!(
            matches!(found, Err(ReserveError::OtherArguments { .. })),
            "{found:?}"
        ),
        None if model.reserve(request.sandbox, fingerprint, rails) => {
            assert!(matches!(found, Ok(Reserved::New(_))), "{found:?}");
        }
        None => assert!(
            matches!(found, Err(ReserveError::Decide { .. })),
            "{found:?}"
        ),
    }
}

fn ready(model: &mut Model, store: &mut Store, who: u8) {
    let who = sandbox(&format!("pod-{who}"));
    let found = store.mark_ready(&who);
    match model.held.get_mut(&who) {
        Some(entry) => {
            entry.state = State::Ready;
            found.unwrap();
        }
        None => assert!(matches!(found, Err(StoreError::NoBinding { .. }))),
    }
}

fn release(model: &mut Model, store: &mut Store, who: u8) {
    let who = sandbox(&format!("pod-{who}"));
    let found = store.release(&who).unwrap();
    match model.held.remove(&who) {
        Some(entry) => {
            let Released::Freed(binding) = found else {
                panic!("{found:?}")
            };
            assert_eq!(entries(&[*binding]), BTreeMap::from([(who, entry)]));
        }
        None => assert_eq!(found, Released::Nothing),
    }
}

/// The store again, with what opening it dropped.
fn reopen(path: &Path, model: &mut Model, store: Store) -> Store {
    drop(store);
    let opened = Store::open(path, &boot(model.boot)).unwrap();
    assert!(opened.dropped.is_empty());
    opened.store
}

fn new_boot(path: &Path, model: &mut Model, store: Store) -> Store {
    drop(store);
    model.boot += 1;
    let opened = Store::open(path, &boot(model.boot)).unwrap();
    assert_eq!(entries(&opened.dropped), std::mem::take(&mut model.held));
    opened.store
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_store_does_what_the_model_does(steps in prop::collection::vec(step(), 1..60)) {
        let directory = tempfile::tempdir().unwrap();
        let path = state_file(&directory);
        let node = Node::new(SHARES, BLOCK as u32);
        let mut model = Model { boot: 1, ..Model::default() };
        let mut store = open(&path);
        for step in steps {
            match step {
                Step::Reserve { who, other, rails } => {
                    reserve(&mut model, &mut store, &node, (who, other, rails));
                }
                Step::Ready { who } => ready(&mut model, &mut store, who),
                Step::Release { who } => release(&mut model, &mut store, who),
                Step::Reopen => store = reopen(&path, &mut model, store),
                Step::NewBoot => store = new_boot(&path, &mut model, store),
            }
            let bindings = store.list().unwrap();
            assert_sound(&bindings);
            prop_assert_eq!(&entries(&bindings), &model.held);
            let looked = Store::open_read_only(&path).unwrap();
            prop_assert_eq!(looked.list(), bindings.as_slice());
            prop_assert_eq!(looked.snapshot(), store.snapshot().unwrap());
        }
    }
}
