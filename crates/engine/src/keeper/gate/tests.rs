//! The gate as properties: never over, never unfair, never stuck.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::keeper::SnapshotLimits;
use crate::keeper::config::PoolConfig;

fn tenant(number: u8) -> Tenant {
    format!("t{number}").parse().unwrap()
}

fn config(boxes: usize, memory: u64, queue: usize, quota: usize) -> KeeperConfig {
    KeeperConfig {
        host: HostLimits {
            boxes,
            memory,
            memory_is_said: true,
            millicpus: 1_000_000,
            queue,
            patience: Duration::from_secs(1),
        },
        tenant_default: Quota { boxes: quota, memory: u64::MAX, millicpus: u64::MAX },
        quotas: BTreeMap::new(),
        pool: PoolConfig { min: 0, max: 0, ttl: Duration::from_secs(1) },
        snapshots: SnapshotLimits::default(),
    }
}

fn need(memory: u64) -> Need {
    Need { boxes: 1, memory, millicpus: 1 }
}

#[derive(Debug, Clone)]
enum Act {
    Ask(u8, u64),
    /// The holder at this place (modulo) gives its room back.
    Release(usize),
    /// The waiter at this place (modulo) goes away.
    Leave(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0_u8..4, 1_u64..40).prop_map(|(tenant, memory)| Act::Ask(tenant, memory)),
        3 => any::<usize>().prop_map(Act::Release),
        1 => any::<usize>().prop_map(Act::Leave),
    ]
}

/// A gate and, beside it, who has and who waits, counted plainly.
struct World {
    gate: Gate,
    inside: Vec<(u8, u64)>,
    outside: Vec<(u64, u8, u64)>,
}

impl World {
    fn let_in(&mut self, admitted: Vec<(u64, Need)>) -> Vec<u8> {
        let mut order = Vec::new();
        for (ticket, need) in admitted {
            let at = self.outside.iter().position(|(other, ..)| *other == ticket).unwrap();
            let (_, tenant, memory) = self.outside.remove(at);
            assert_eq!(need.memory, memory);
            // First come, first served within a tenant.
            assert!(self.outside.iter().all(|(other, of, _)| *of != tenant || *other > ticket));
            self.inside.push((tenant, memory));
            order.push(tenant);
        }
        order
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Ask(number, memory) => {
                if self.gate.reserve(&tenant(number), need(memory)).is_err() {
                    return;
                }
                match self.gate.ask(&tenant(number), need(memory)) {
                    Asked::Admitted => self.inside.push((number, memory)),
                    Asked::Waiting(ticket) => self.outside.push((ticket, number, memory)),
                    Asked::Full => self.gate.unreserve(&tenant(number), need(memory)),
                }
            }
            Act::Release(at) if !self.inside.is_empty() => {
                let (number, memory) = self.inside.remove(at % self.inside.len());
                self.gate.unreserve(&tenant(number), need(memory));
                let admitted = self.gate.release(need(memory));
                self.let_in(admitted);
            }
            Act::Leave(at) if !self.outside.is_empty() => {
                let (ticket, number, memory) = self.outside.remove(at % self.outside.len());
                self.gate.unreserve(&tenant(number), need(memory));
                let admitted = self.gate.leave(&tenant(number), ticket);
                self.let_in(admitted);
            }
            Act::Release(_) | Act::Leave(_) => {}
        }
    }
}

impl World {
    /// The tenants that wait, in the order of their turns, each with the ticket that is its next.
    fn next_in_line(&self) -> Vec<(Tenant, u64)> {
        let next = |tenant: &Tenant| self.gate.lines[tenant].front().unwrap().0;
        self.gate.turns.iter().map(|tenant| (tenant.clone(), next(tenant))).collect()
    }
}

const BOXES: usize = 6;
const MEMORY: u64 = 100;
const QUEUE: usize = 8;
const QUOTA: usize = 5;

fn world() -> World {
    World { gate: Gate::new(&config(BOXES, MEMORY, QUEUE, QUOTA)), inside: Vec::new(), outside: Vec::new() }
}

proptest! {
    #[test]
    fn nobody_is_ever_over_a_quota_and_the_host_never_over_its_limits(acts in prop::collection::vec(act(), 0..120)) {
        let mut world = world();
        for act in &acts {
            world.act(act);
            prop_assert!(world.inside.len() <= BOXES);
            prop_assert!(world.inside.iter().map(|(_, memory)| memory).sum::<u64>() <= MEMORY);
            prop_assert!(world.outside.len() <= QUEUE);
            prop_assert_eq!(world.outside.len(), world.gate.waiting());
            for number in 0..4 {
                let has = world.inside.iter().filter(|(of, _)| *of == number).count()
                    + world.outside.iter().filter(|(_, of, _)| *of == number).count();
                prop_assert!(has <= QUOTA);
            }
        }
    }

    #[test]
    fn whoever_waits_gets_in_once_everybody_else_has_gone(acts in prop::collection::vec(act(), 0..120)) {
        let mut world = world();
        acts.iter().for_each(|act| world.act(act));
        while !world.inside.is_empty() {
            world.act(&Act::Release(0));
        }
        prop_assert!(world.outside.is_empty());
        prop_assert_eq!(world.gate.given, Sum::default());
        prop_assert!(world.gate.tenants.is_empty() && world.gate.lines.is_empty() && world.gate.turns.is_empty());
    }

    #[test]
    fn whoever_waits_comes_nearer_to_its_turn_with_each_turn_of_another_however_that_ends(acts in prop::collection::vec(act(), 0..120)) {
        let mut world = world();
        for act in &acts {
            let before: Vec<(Tenant, u64)> = world.next_in_line();
            world.act(act);
            let after = world.next_in_line();
            let place = |(tenant, ticket): &(Tenant, u64)| after.iter().position(|next| next.0 == *tenant && next.1 == *ticket);
            // Whose turn it was, and is not any more: admitted or gone.
            let used_up = before.first().is_some_and(|first| place(first).is_none());
            for (was, next) in before.iter().enumerate().skip(1) {
                if let Some(is) = place(next) {
                    prop_assert!(is + usize::from(used_up) <= was, "{:?} from {} to {}", next, was, is);
                }
            }
        }
    }

    #[test]
    fn the_room_goes_round_the_tenants_however_many_one_of_them_asks(greedy in 1_usize..40, modest in 1_usize..5) {
        let mut gate = Gate::new(&config(1, MEMORY, 100, 100));
        prop_assert_eq!(gate.ask(&tenant(9), need(1)), Asked::Admitted);
        let mut whose = BTreeMap::new();
        for (number, count) in [(0_u8, greedy), (1, modest)] {
            for _ in 0..count {
                let Asked::Waiting(ticket) = gate.ask(&tenant(number), need(1)) else { panic!("no room was free") };
                whose.insert(ticket, number);
            }
        }
        let order: Vec<u8> = (0..greedy + modest).flat_map(|_| gate.release(need(1))).map(|(ticket, _)| whose[&ticket]).collect();
        prop_assert_eq!(order.len(), greedy + modest);
        // While both wait, they take turns.
        let both = 2 * greedy.min(modest);
        for (place, number) in order.iter().take(both).enumerate() {
            prop_assert_eq!(usize::from(*number), place % 2);
        }
    }
}

#[test]
fn a_large_box_is_not_starved_by_small_ones_that_came_later() {
    let mut gate = Gate::new(&config(10, 100, 10, 10));
    assert_eq!(gate.ask(&tenant(0), need(60)), Asked::Admitted);
    let Asked::Waiting(large) = gate.ask(&tenant(1), need(80)) else { panic!("it does not fit") };
    assert!(matches!(gate.ask(&tenant(2), need(10)), Asked::Waiting(_)), "it would fit, but it came later");
    assert!(!gate.try_take(need(1)), "nor does a pool overtake");
    let admitted: Vec<u64> = gate.release(need(60)).into_iter().map(|(ticket, _)| ticket).collect();
    assert_eq!(admitted, [large, large + 1]);
}

#[test]
fn a_tenant_that_asks_and_gives_up_over_and_over_keeps_nobody_from_its_turn() {
    let mut gate = Gate::new(&config(10, 100, 10, 10));
    assert_eq!(gate.ask(&tenant(0), need(60)), Asked::Admitted);
    let ask_much = |gate: &mut Gate| match gate.ask(&tenant(1), need(80)) {
        Asked::Waiting(ticket) => ticket,
        other => panic!("{other:?}"),
    };
    let first = ask_much(&mut gate);
    let Asked::Waiting(modest) = gate.ask(&tenant(2), need(10)) else { panic!("it came later") };
    // Another of its requests waits before this one goes away.
    let second = ask_much(&mut gate);
    let admitted: Vec<u64> = gate.leave(&tenant(1), first).into_iter().map(|(ticket, _)| ticket).collect();
    assert_eq!(admitted, [modest], "its turn came");
    // Alone, it keeps its own place.
    ask_much(&mut gate);
    assert!(gate.leave(&tenant(1), second).is_empty());
    assert_eq!(gate.turns, [tenant(1)]);
}

#[test]
fn what_the_host_can_never_give_is_refused_at_once_and_by_name() {
    let mut gate = Gate::new(&config(1, 100, 10, 1));
    assert_eq!(gate.reserve(&tenant(0), need(101)), Err("host_memory"));
    assert_eq!(gate.reserve(&tenant(0), need(100)), Ok(()));
    assert_eq!(gate.reserve(&tenant(0), need(1)), Err("boxes"));
}

#[test]
fn a_full_queue_says_so() {
    let mut gate = Gate::new(&config(1, 100, 1, 9));
    assert_eq!(gate.ask(&tenant(0), need(1)), Asked::Admitted);
    assert!(matches!(gate.ask(&tenant(0), need(1)), Asked::Waiting(_)));
    assert_eq!(gate.ask(&tenant(0), need(1)), Asked::Full);
}

#[test]
fn the_memory_of_a_machine_that_is_no_box_is_the_hosts_all_the_same() {
    let mut gate = Gate::new(&config(1, 10, 1, 1));
    let machine = Need { boxes: 0, memory: 6, millicpus: 0 };
    assert!(gate.try_take(need(4)) && gate.try_take(machine), "one box, and a machine beside it");
    assert!(!gate.try_take(Need { memory: 1, ..machine }), "all memory is given away");
    gate.release(machine);
    assert!(gate.try_take(Need { memory: 1, ..machine }));
    assert!(!gate.try_take(need(1)), "a second box");
}

#[test]
fn what_never_fits_is_told_apart_from_what_does_not_fit_now() {
    let mut gate = Gate::new(&config(1, 10, 1, 1));
    assert!(gate.try_take(need(10)));
    assert!(gate.fits(need(10)) && !gate.fits(need(11)));
}
