//! When to stop a command whose lease may run out: pure.

use std::time::Duration;

use lockstep::{LostCause, Moment};

/// How much earlier than trust ends the command is killed, as a part of the ttl: time for the
/// kernel to carry it out.
const MARGIN_PART: u32 = 20;
const MARGIN_MOST: Duration = Duration::from_millis(200);

/// A lease must be worth this many times the grace, because it is renewed after a third of it and
/// a renewal may be slow.
const GRACES: u32 = 2;

/// Decides, for one command under one lock.
#[derive(Debug)]
pub(crate) struct Plan {
    grace: Duration,
    margin: Duration,
    /// Until when the lock was trusted when it last was.
    until: Moment,
    kill_at: Option<Moment>,
}

/// What is known about the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It is trusted until then, unless it is renewed.
    Trusted(Moment),
    Lost(LostCause),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Look again at this moment, or when the lock is lost.
    Wait(Moment),
    /// Ask the command to end; look again at this moment.
    Terminate(Why, Moment),
    Kill(Why),
}

/// Why a command is stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// No renewal came in time, and what is left of the lease is needed to stop.
    NotRenewed,
    Lost(LostCause),
}

impl Plan {
    /// A plan for this ttl and grace, if the ttl leaves enough time; else the shortest that does.
    pub(crate) fn new(ttl: Duration, grace: Duration) -> Result<Self, Duration> {
        let shortest = grace.saturating_mul(GRACES);
        if ttl < shortest {
            return Err(shortest);
        }
        let margin = (ttl / MARGIN_PART).min(MARGIN_MOST);
        Ok(Self { grace, margin, until: Moment::ZERO, kill_at: None })
    }

    /// Whether a command that starts now would not have to be stopped at once.
    pub(crate) fn has_time(&self, now: Moment, until: Moment) -> bool {
        now < until - self.margin - self.grace
    }

    pub(crate) fn look(&mut self, now: Moment, seen: Seen) -> Step {
        if let Seen::Trusted(until) = seen {
            self.until = until;
        }
        let why = match (&seen, self.kill_at) {
            (Seen::Trusted(_), _) => Why::NotRenewed,
            (Seen::Lost(cause), _) => Why::Lost(cause.clone()),
        };
        let kill_at = match (seen, self.kill_at) {
            // What has begun is carried through, also if a renewal came after all: the command has
            // been told to end. A break leaves it the same time.
            (Seen::Trusted(_) | Seen::Lost(LostCause::Broken(_)), Some(kill_at)) => {
                return if now < kill_at { Step::Wait(kill_at) } else { Step::Kill(why) };
            }
            (Seen::Trusted(until), None) => {
                let kill_at = until - self.margin;
                let terminate_at = kill_at - self.grace;
                if now < terminate_at {
                    return Step::Wait(terminate_at);
                }
                kill_at
            }
            // The store keeps the rest of the lease for us, to stop in.
            (Seen::Lost(LostCause::Broken(_)), None) => {
                (now + self.grace).min(self.until - self.margin)
            }
            // Somebody else may hold it already: there is no time to be polite.
            (Seen::Lost(_), _) => now,
        };
        if now >= kill_at {
            return Step::Kill(why);
        }
        self.kill_at = Some(kill_at);
        Step::Terminate(why, kill_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(ms)
    }

    fn plan() -> Plan {
        Plan::new(Duration::from_secs(10), Duration::from_secs(2)).unwrap()
    }

    fn broken() -> LostCause {
        LostCause::Broken("ticket".to_owned())
    }

    #[test]
    fn a_renewed_lease_is_left_alone() {
        let mut plan = plan();
        assert_eq!(plan.look(at(0), Seen::Trusted(at(9_900))), Step::Wait(at(7_700)));
        assert_eq!(plan.look(at(7_700), Seen::Trusted(at(13_200))), Step::Wait(at(11_000)));
    }

    #[test]
    fn without_renewal_it_is_asked_and_then_killed_before_trust_ends() {
        let mut plan = plan();
        let seen = || Seen::Trusted(at(9_900));
        assert_eq!(plan.look(at(7_700), seen()), Step::Terminate(Why::NotRenewed, at(9_700)));
        assert_eq!(plan.look(at(8_000), seen()), Step::Wait(at(9_700)));
        assert_eq!(plan.look(at(9_700), seen()), Step::Kill(Why::NotRenewed));
    }

    #[test]
    fn a_renewal_that_comes_too_late_changes_nothing() {
        let mut plan = plan();
        plan.look(at(7_700), Seen::Trusted(at(9_900)));
        assert_eq!(plan.look(at(8_000), Seen::Trusted(at(18_000))), Step::Wait(at(9_700)));
        assert_eq!(plan.look(at(9_700), Seen::Trusted(at(18_000))), Step::Kill(Why::NotRenewed));
    }

    #[test]
    fn a_broken_lock_leaves_the_grace_but_never_more_than_the_lease() {
        let mut early = plan();
        early.look(at(0), Seen::Trusted(at(9_900)));
        let why = Why::Lost(broken());
        let step = early.look(at(3_300), Seen::Lost(broken()));
        assert_eq!(step, Step::Terminate(why.clone(), at(5_300)));
        assert_eq!(early.look(at(5_300), Seen::Lost(broken())), Step::Kill(why.clone()));

        let mut late = plan();
        late.look(at(0), Seen::Trusted(at(9_900)));
        let step = late.look(at(9_000), Seen::Lost(broken()));
        assert_eq!(step, Step::Terminate(why, at(9_700)));
    }

    #[test]
    fn a_lock_that_may_be_somebody_elses_leaves_no_time() {
        for cause in [LostCause::Taken, LostCause::Expired, LostCause::Closed] {
            let mut plan = plan();
            plan.look(at(0), Seen::Trusted(at(9_900)));
            let step = plan.look(at(10), Seen::Lost(cause.clone()));
            assert_eq!(step, Step::Kill(Why::Lost(cause)));
        }
        let mut asked = plan();
        asked.look(at(7_700), Seen::Trusted(at(9_900)));
        let step = asked.look(at(7_800), Seen::Lost(LostCause::Taken));
        assert_eq!(step, Step::Kill(Why::Lost(LostCause::Taken)));
    }

    #[test]
    fn after_a_long_sleep_of_the_machine_it_is_killed_at_once() {
        let mut plan = plan();
        plan.look(at(0), Seen::Trusted(at(9_900)));
        assert_eq!(plan.look(at(90_000), Seen::Trusted(at(9_900))), Step::Kill(Why::NotRenewed));
    }

    #[test]
    fn the_ttl_must_be_worth_the_grace_twice() {
        let seconds = Duration::from_secs;
        assert!(Plan::new(seconds(4), seconds(2)).is_ok());
        assert_eq!(Plan::new(seconds(3), seconds(2)).unwrap_err(), seconds(4));
        assert!(Plan::new(seconds(1), Duration::ZERO).is_ok());
    }

    #[test]
    fn a_command_is_not_started_only_to_be_stopped() {
        assert!(plan().has_time(at(7_699), at(9_900)));
        assert!(!plan().has_time(at(7_700), at(9_900)));
    }
}
