use super::*;
use crate::store::HolderView;

fn owner(number: u128) -> Owner {
    Owner::from_u128(number)
}

fn holder(number: u128, share: Share) -> HolderView {
    HolderView {
        claim: ClaimId::from_u128(number + 1000),
        owner: owner(number),
        label: Label::new(format!("o{number}")),
        share,
        token: None,
        since_ms: 0,
        left: Duration::from_secs(1),
        broken: None,
    }
}

/// A waiter that came at `since`, as this owner.
fn waiter(number: u128, share: Share, since_ms: u64) -> WaiterView {
    WaiterView {
        claim: ClaimId::from_u128(number + 2000),
        owner: owner(number),
        label: Label::new(format!("o{number}")),
        share,
        since_ms,
    }
}

fn lock(name: &str, holders: Vec<HolderView>, waiters: Vec<WaiterView>) -> LockView {
    LockView { key: Key::new(name).unwrap(), holders, waiting: waiters.len() as u64, waiters }
}

fn find(me: u128, locks: &[LockView]) -> Option<Deadlock> {
    let mut search = Search::from(owner(me));
    while let Some(next) = search.next() {
        let waits = |lock: &&LockView| lock.waiters.iter().any(|w| w.owner == next);
        let waited_for: Vec<LockView> = locks.iter().filter(waits).cloned().collect();
        if let Some(deadlock) = search.saw(next, &waited_for) {
            return Some(deadlock);
        }
    }
    None
}

const X: Share = Share::Exclusive;
const R: Share = Share::Read;

#[test]
fn a_circle_of_three_is_found_by_each_and_all_agree_on_who_gives_way() {
    let locks = [
        lock("a", vec![holder(1, X)], vec![waiter(3, X, 30)]),
        lock("b", vec![holder(2, X)], vec![waiter(1, X, 10)]),
        lock("c", vec![holder(3, X)], vec![waiter(2, X, 20)]),
    ];
    for me in 1..=3 {
        let deadlock = find(me, &locks).unwrap();
        assert_eq!(deadlock.circle.len(), 3, "{deadlock}");
        assert_eq!(deadlock.circle[0].owner, owner(me));
        assert_eq!(deadlock.gives_way(), Some(ClaimId::from_u128(2003)));
    }
    let text = find(1, &locks).unwrap().to_string();
    assert!(text.contains("`o1` waits for lock `b` behind `o2`"), "{text}");
    assert!(text.contains("`o3` waits for lock `a` behind `o1`"), "{text}");
}

#[test]
fn a_chain_is_no_circle() {
    let locks = [
        lock("a", vec![holder(1, X)], vec![waiter(2, X, 1), waiter(3, X, 2)]),
        lock("b", vec![holder(2, X)], vec![waiter(3, X, 3)]),
    ];
    assert_eq!(find(1, &locks), None);
    assert_eq!(find(2, &locks), None);
    assert_eq!(find(3, &locks), None);
}

#[test]
fn an_owner_can_wait_for_itself() {
    let locks = [lock("a", vec![holder(1, X)], vec![waiter(1, X, 1)])];
    assert_eq!(find(1, &locks).unwrap().circle.len(), 1);
}

#[test]
fn readers_are_not_in_each_others_way_and_a_writer_in_the_queue_is() {
    // 1 reads a and waits for b, which 2 has; 2 waits to read a, behind the writer 3.
    let through_the_queue = [
        lock("a", vec![holder(1, R)], vec![waiter(3, X, 1), waiter(2, R, 2)]),
        lock("b", vec![holder(2, X)], vec![waiter(1, X, 3)]),
    ];
    assert_eq!(find(1, &through_the_queue).unwrap().circle.len(), 3);
    let without_writer = [
        lock("a", vec![holder(1, R)], vec![waiter(2, R, 2)]),
        lock("b", vec![holder(2, X)], vec![waiter(1, X, 3)]),
    ];
    assert_eq!(find(1, &without_writer), None);
}

#[test]
fn permits_and_broken_holders_make_no_circle() {
    let some = Share::Permits { count: 1, of: 2 };
    let permits = [
        lock("a", vec![holder(1, some), holder(4, some)], vec![waiter(2, some, 1)]),
        lock("b", vec![holder(2, X)], vec![waiter(1, X, 3)]),
    ];
    assert_eq!(find(1, &permits), None);
    let mut broken = holder(1, X);
    broken.broken = Some("moved".into());
    let broken = [
        lock("a", vec![broken], vec![waiter(2, X, 1)]),
        lock("b", vec![holder(2, X)], vec![waiter(1, X, 3)]),
    ];
    assert_eq!(find(1, &broken), None);
}

#[test]
fn who_was_never_named_does_not_give_way() {
    let mut unnamed = waiter(3, X, 99);
    unnamed.owner = Owner::from_u128(unnamed.claim.as_u128());
    let locks = [
        lock("a", vec![holder(1, R)], vec![unnamed, waiter(2, R, 2)]),
        lock("b", vec![holder(2, X)], vec![waiter(1, X, 3)]),
    ];
    assert_eq!(find(1, &locks).unwrap().gives_way(), Some(ClaimId::from_u128(2001)));
}

#[test]
fn who_was_never_named_is_followed_without_asking() {
    let mut unnamed = waiter(3, X, 1);
    unnamed.owner = Owner::from_u128(unnamed.claim.as_u128());
    // 2 waits to read a behind a writer that waits for 1 and 4; 1 waits for 2.
    let read = lock("a", vec![holder(4, R), holder(1, R)], vec![unnamed, waiter(2, R, 2)]);
    let mut search = Search::from(owner(2));
    assert_eq!(search.next(), Some(owner(2)));
    assert_eq!(search.saw(owner(2), &[read]), None);
    assert_eq!([search.next(), search.next()], [Some(owner(4)), Some(owner(1))]);
    let held = lock("b", vec![holder(2, X)], vec![waiter(1, X, 3)]);
    assert_eq!(search.saw(owner(1), &[held]).unwrap().circle.len(), 3);
}
