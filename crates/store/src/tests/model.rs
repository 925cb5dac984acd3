//! Random histories against a model in plain maps: who holds what, and which address comes next.

use super::*;
use podrail_core::ids::SlotId;
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;

/// Addresses of the block in each family; three pods of four rails fill it.
const BLOCK: usize = 12;
const SHARES: u16 = 2;

#[derive(Debug, Clone)]
enum Step {
    Reserve { who: u8, other: bool, rails: usize },
    Ready { who: u8 },
    Release { who: u8 },
    Allocate { slots: Vec<u16> },
    ForgetWaiting { slots: Vec<u16> },
    ForgetPod { pod: u8 },
    Grow { slots: u16 },
    Reopen,
    NewBoot,
}

fn slots() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(0_u16..8, 0..4)
}

fn ids(slots: &[u16]) -> Vec<SlotId> {
    slots.iter().copied().map(SlotId).collect()
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u8..6, prop::bool::weighted(0.1), 0_usize..6)
            .prop_map(|(who, other, rails)| Step::Reserve { who, other, rails }),
        1 => (0_u8..6).prop_map(|who| Step::Ready { who }),
        3 => (0_u8..6).prop_map(|who| Step::Release { who }),
        2 => slots().prop_map(|slots| Step::Allocate { slots }),
        1 => slots().prop_map(|slots| Step::ForgetWaiting { slots }),
        1 => (0_u8..3).prop_map(|pod| Step::ForgetPod { pod }),
        1 => (0_u16..20).prop_map(|slots| Step::Grow { slots }),
        1 => Just(Step::Reopen),
        1 => Just(Step::NewBoot),
    ]
}

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    fingerprint: String,
    state: State,
    rails: BTreeSet<(u16, u16)>,
    pod: Option<PodRef>,
    slots: BTreeSet<u16>,
    sequence: i64,
    /// In the order of the rails.
    addresses: Vec<IpAddr>,
}

struct Model {
    held: BTreeMap<SandboxId, Entry>,
    /// Numbers of all free addresses: whatever is freed goes to the end.
    free: VecDeque<usize>,
    /// Of each number that was freed: what has to be issued before it.
    owed: BTreeMap<usize, BTreeSet<usize>>,
    boot: u32,
    /// Bindings so far.
    sequence: i64,
    waiting: BTreeMap<SlotId, Waiting>,
    allocations: i64,
    known: BTreeSet<String>,
    slots: u16,
    /// The boot that `slots` is of.
    slots_boot: u32,
}

fn v4(number: usize) -> IpAddr {
    let first = u32::from_be_bytes([10, 239, 0, 1]) + BLOCK as u32;
    IpAddr::V4((first + number as u32).into())
}

fn v6(number: usize) -> IpAddr {
    let first = (0xfd00_u128 << 112) + 1 + BLOCK as u128;
    IpAddr::V6((first + number as u128).into())
}

/// Numbers of a sandbox's addresses; both families have the same.
fn numbers(entry: &Entry) -> Vec<usize> {
    let number = |address| (0..BLOCK).find(|number| v4(*number) == address);
    let numbers: Vec<_> = entry.addresses.iter().copied().filter_map(number).collect();
    let both = numbers.iter().flat_map(|n| [v4(*n), v6(*n)]);
    assert!(both.eq(entry.addresses.iter().copied()), "{entry:?}");
    numbers
}

impl Model {
    fn new() -> Self {
        let (held, owed, waiting, known) = Default::default();
        Self {
            held,
            free: (0..BLOCK).collect(),
            owed,
            boot: 1,
            sequence: 0,
            waiting,
            allocations: 0,
            known,
            slots: 0,
            slots_boot: 1,
        }
    }

    fn seen(&self) -> BTreeMap<SlotId, i64> {
        let waiting = self.waiting.iter();
        waiting.map(|(slot, row)| (*slot, row.number)).collect()
    }

    fn free_rails(&self) -> Vec<(u16, u16)> {
        let taken: BTreeSet<_> = self.held.values().flat_map(|entry| &entry.rails).collect();
        let first = |rail| (0..SHARES).find(|share| !taken.contains(&(rail, *share)));
        (0..16)
            .filter_map(|rail| Some((rail, first(rail)?)))
            .collect()
    }

    /// The guarantee: nothing that was free at the release of `number` is still waiting.
    fn issue(&mut self, number: usize) {
        let missed = self.owed.remove(&number).unwrap_or_default();
        assert_eq!(missed, BTreeSet::new(), "{number} came back early");
        for others in self.owed.values_mut() {
            others.remove(&number);
        }
    }

    /// Those of the free ones that were leased before.
    fn freed(&self) -> Vec<IpAddr> {
        let freed = self.free.iter().filter(|n| self.owed.contains_key(n));
        freed.flat_map(|n| [v4(*n), v6(*n)]).collect()
    }

    /// Frees addresses of one sandbox; they have no order among them that anyone relies on.
    fn free(&mut self, entry: &Entry) {
        let before: BTreeSet<_> = self.free.iter().copied().collect();
        for number in numbers(entry) {
            self.owed.insert(number, before.clone());
            self.free.push_back(number);
        }
    }

    /// What a new reservation gets, if it can be had.
    fn reserve(&mut self, request: &Request, count: usize) -> bool {
        let mut rails = self.free_rails();
        if rails.len() < count || self.free.len() < count {
            return false;
        }
        rails.truncate(count);
        let numbers: Vec<_> = self.free.drain(..count).collect();
        self.sequence += 1;
        let slots: BTreeSet<_> = rails.iter().map(|(rail, _)| slot_of(*rail)).collect();
        self.waiting.retain(|slot, _| !slots.contains(&slot.0));
        self.known
            .extend(request.pod.as_ref().map(|pod| pod.uid.to_string()));
        let entry = Entry {
            fingerprint: request.fingerprint.clone(),
            state: State::Pending,
            pod: request.pod.clone(),
            slots,
            sequence: self.sequence,
            rails: rails.into_iter().collect(),
            addresses: numbers.iter().flat_map(|n| [v4(*n), v6(*n)]).collect(),
        };
        numbers.into_iter().for_each(|number| self.issue(number));
        self.held.insert(request.sandbox.clone(), entry);
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
        pod: binding.request.pod.clone(),
        slots: binding
            .rails
            .iter()
            .filter_map(|rail| Some(rail.slot?.0))
            .collect(),
        sequence: binding.sequence,
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
    // Every third is of no pod.
    let pod = (who % 3 > 0).then(|| pod_ref(&format!("pod-{}", who % 3)));
    let request = Request {
        pod,
        seen: model.seen(),
        ..request(&name, fingerprint)
    };
    let found = store.reserve(&request, |held| {
        let mut decision = node.choose(held, rails)?;
        for rail in &mut decision.rails {
            rail.slot = Some(SlotId(slot_of(rail.index.0)));
        }
        Ok::<_, NoRails>(decision)
    });
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
        None if model.reserve(&request, rails) => {
            assert!(matches!(found, Ok(Reserved::New(_))), "{found:?}");
        }
        None => assert!(
            matches!(found, Err(ReserveError::Decide { .. })),
            "{found:?}"
        ),
    }
}

/// A rail always comes with the same slot, so that with several shares a slot has several holders.
fn slot_of(rail: u16) -> u16 {
    rail
}

fn assert_slots(model: &Model, store: &Store, looked: &ReadOnly) {
    assert_eq!(store.waiting().unwrap(), model.waiting);
    assert_eq!(looked.waiting(), &model.waiting);
    let pods = store.pods().unwrap();
    assert_eq!(looked.pods(), pods);
    let pods: BTreeSet<_> = pods.iter().map(|known| known.pod.uid.to_string()).collect();
    assert_eq!(pods, model.known);
    assert_eq!(looked.slots(), model.slots);
    for slot in 0..16 {
        let has = |(_, entry): &(&SandboxId, &Entry)| entry.slots.contains(&slot);
        let newest = model
            .held
            .iter()
            .filter(has)
            .max_by_key(|(_, entry)| entry.sequence);
        let owner = store.slot_owner(SlotId(slot)).unwrap();
        assert_eq!(owner.as_ref(), newest.map(|(who, _)| who));
        assert_eq!(looked.slot_owner(SlotId(slot)), owner.as_ref());
        for who in model.held.keys() {
            let own = store.own_slots(who).unwrap().contains(&SlotId(slot));
            let waits = model.waiting.contains_key(&SlotId(slot));
            assert_eq!(
                own,
                owner.as_ref() == Some(who) && !waits,
                "{slot} of {who}"
            );
        }
    }
}

fn forget_pod(model: &mut Model, store: &mut Store, pod: u8) {
    let uid = pod_ref(&format!("pod-{pod}")).uid;
    let mut pods = model.held.values().filter_map(|entry| entry.pod.as_ref());
    let holds = pods.any(|pod| pod.uid == uid);
    if !holds {
        model.known.remove(uid.as_str());
    }
    let since = request("any", "").at;
    assert_eq!(store.forget_pod(&uid, since).unwrap(), !holds);
    assert_eq!(store.knows_pod(&uid).unwrap(), holds);
}

fn allocate(model: &mut Model, store: &mut Store, slots: &[u16]) {
    let at = i64::from(model.boot) * 100 + model.sequence;
    store.allocate(&ids(slots), at).unwrap();
    model.allocations += 1;
    let row = Waiting {
        since: at,
        number: model.allocations,
    };
    model
        .waiting
        .extend(ids(slots).into_iter().map(|slot| (slot, row)));
}

fn grow(model: &mut Model, store: &mut Store, slots: u16) {
    if std::mem::replace(&mut model.slots_boot, model.boot) != model.boot {
        model.slots = 0;
    }
    model.slots = model.slots.max(slots);
    assert_eq!(store.grow_slots(slots).unwrap(), model.slots);
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
            model.free(&entry);
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
    let dropped = std::mem::take(&mut model.held);
    assert_eq!(entries(&opened.dropped), dropped);
    dropped.values().for_each(|entry| model.free(entry));
    let slots = dropped.values().flat_map(|entry| &entry.slots);
    let row = Waiting {
        since: request("any", "").at,
        number: 0,
    };
    for slot in slots {
        model.waiting.entry(SlotId(*slot)).or_insert(row);
    }
    opened.store
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_store_does_what_the_model_does(steps in prop::collection::vec(step(), 1..60)) {
        let directory = tempfile::tempdir().unwrap();
        let path = state_file(&directory);
        let node = Node::new(SHARES, BLOCK as u32);
        let mut model = Model::new();
        let mut store = open(&path);
        for step in steps {
            match step {
                Step::Reserve { who, other, rails } => {
                    reserve(&mut model, &mut store, &node, (who, other, rails));
                }
                Step::Ready { who } => ready(&mut model, &mut store, who),
                Step::Release { who } => release(&mut model, &mut store, who),
                Step::Allocate { slots } => allocate(&mut model, &mut store, &slots),
                Step::ForgetWaiting { slots } => {
                    store.forget_waiting(&ids(&slots)).unwrap();
                    let slots = ids(&slots);
                    model.waiting.retain(|slot, _| !slots.contains(slot));
                }
                Step::ForgetPod { pod } => forget_pod(&mut model, &mut store, pod),
                Step::Grow { slots } => grow(&mut model, &mut store, slots),
                Step::Reopen => store = reopen(&path, &mut model, store),
                Step::NewBoot => store = new_boot(&path, &mut model, store),
            }
            let bindings = store.list().unwrap();
            assert_sound(&bindings);
            prop_assert_eq!(&entries(&bindings), &model.held);
            let looked = Store::open_read_only(&path).unwrap();
            prop_assert_eq!(looked.list(), bindings.as_slice());
            assert_slots(&model, &store, &looked);
            let snapshot = store.snapshot().unwrap();
            prop_assert_eq!(looked.snapshot(), snapshot.clone());
            prop_assert_eq!(snapshot.freed, model.freed());
        }
    }
}
