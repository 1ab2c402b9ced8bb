//! Which request meets which fault.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::gate::Gate;
use super::request::{Kind, Request};

/// Chooses requests (for [`Fault::DropPush`]: pushes).
///
/// ```
/// use lockstep_testkit::proxy::Match;
///
/// let second_release = Match::command("evalsha").with_arg("lock:orders").nth(2);
/// let insert = Match::sql("INSERT INTO leases");
/// let wide = Match::when(|request| request.args.len() > 3);
/// ```
#[derive(Clone)]
pub struct Match {
    what: What,
    arg: Option<Vec<u8>>,
    nth: usize,
}

#[derive(Clone)]
enum What {
    Any,
    Command(String),
    Sql(String),
    Prepare(String),
    When(Arc<dyn Fn(&Request) -> bool + Send + Sync>),
}

impl Match {
    /// Every request, the handshake of the driver included.
    pub fn any() -> Self {
        Self::new(What::Any)
    }

    /// Requests of this [`name`](Request::name), upper or lower case.
    pub fn command(name: &str) -> Self {
        Self::new(What::Command(name.to_ascii_uppercase()))
    }

    /// Requests that run a statement of SQL and whose text, or any parameter of it, contains
    /// `text`. A round trip that only prepares the statement does not count, so that a rule hits
    /// the same request whether or not the driver had the statement in its cache.
    pub fn sql(text: &str) -> Self {
        Self::new(What::Sql(text.to_owned()))
    }

    /// Requests that only prepare a statement whose SQL contains `text`.
    pub fn prepare(text: &str) -> Self {
        Self::new(What::Prepare(text.to_owned()))
    }

    /// Requests the closure accepts. It runs inside the proxy: it must not call it back.
    pub fn when(accepts: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Self {
        Self::new(What::When(Arc::new(accepts)))
    }

    /// Narrows to requests of which some argument (or Bind parameter) contains these bytes.
    #[must_use]
    pub fn with_arg(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.arg = Some(bytes.as_ref().to_vec());
        self
    }

    /// Passes over the first `n - 1` matching requests: `nth(1)` changes nothing. A rule counts
    /// from the moment it is installed, the log from its beginning.
    #[must_use]
    pub fn nth(mut self, n: usize) -> Self {
        self.nth = n.max(1);
        self
    }

    fn new(what: What) -> Self {
        Self { what, arg: None, nth: 1 }
    }

    /// Whether the request is of the described sort, whatever its number.
    fn accepts(&self, request: &Request) -> bool {
        let sort = match &self.what {
            What::Any => true,
            What::Command(name) => request.name == *name,
            What::Sql(text) => {
                request.executes()
                    && (request.sql.contains(text) || request.has_arg(text.as_bytes()))
            }
            What::Prepare(text) => request.name == "PREPARE" && request.sql.contains(text),
            What::When(accepts) => accepts(request),
        };
        sort && self.arg.as_ref().is_none_or(|bytes| request.has_arg(bytes))
    }

    pub(super) fn count<'a>(&self, requests: impl Iterator<Item = &'a Request>) -> usize {
        let accepted =
            requests.filter(|seen| seen.kind == Kind::Request && self.accepts(seen)).count();
        accepted.saturating_sub(self.nth - 1)
    }
}

impl fmt::Debug for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Any => f.write_str("any")?,
            What::Command(name) => write!(f, "command {name}")?,
            What::Sql(text) => write!(f, "sql {text:?}")?,
            What::Prepare(text) => write!(f, "prepare {text:?}")?,
            What::When(_) => f.write_str("closure")?,
        }
        if let Some(bytes) = &self.arg {
            write!(f, " with {:?}", String::from_utf8_lossy(bytes))?;
        }
        write!(f, " from #{}", self.nth)
    }
}

/// What happens to a request.
///
/// A connection is an ordered stream: whatever holds back one message holds back those behind it
/// in the same direction of the same connection.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Forward the request, swallow its reply, keep the connection and pass what follows.
    ///
    /// No network does this (a stream can lose its end, not its middle), so it is meant for
    /// clients with one request at a time. A client that pipelines will take the next reply for
    /// the missing one; give that client [`Mute`](Self::Mute) or
    /// [`DropReplyAndCut`](Self::DropReplyAndCut).
    DropReply,
    /// Forward the request, and from its reply on pass nothing more to the client on this
    /// connection, which stays open: what a client sees whose peer's packets stopped arriving.
    Mute,
    /// Forward the request, wait until the server has answered, then close the connection
    /// without passing the reply.
    DropReplyAndCut,
    /// Close the connection without forwarding the request. Replies still due to earlier
    /// requests are passed first, so that the outcome does not depend on a race.
    CutBefore,
    /// Forward the request only after this time.
    Delay(Duration),
    /// Pass the reply only this long after the server gave it.
    DelayReply(Duration),
    /// Hold the request until the gate opens. It is forwarded then even if the client has hung up
    /// meanwhile: the packet that was late.
    Hold(Gate),
    /// Hold the reply until the gate opens. The gate is reached once the server has answered in
    /// full.
    HoldReply(Gate),
    /// Forward the request and pass these bytes instead of its reply.
    Garbage(Vec<u8>),
    /// Answer with a well-formed error without forwarding the request.
    ///
    /// RESP: the text after the `-`, such as `LOADING dataset in memory`. PostgreSQL: a message,
    /// optionally led by its SQLSTATE as in `40001 could not serialize access`; during the startup
    /// of a connection it is fatal and the connection ends. MySQL: the same, and led by the
    /// error's number as well if you like: `1213 40001 Deadlock found`.
    ErrorReply(String),
    /// Swallow a push message or notification; requests never meet this fault.
    DropPush,
}

impl Fault {
    /// Whether the fault is about the reply, so that a request without one cannot meet it.
    fn needs_reply(&self) -> bool {
        match self {
            Self::DropReply
            | Self::Mute
            | Self::DropReplyAndCut
            | Self::DelayReply(_)
            | Self::HoldReply(_)
            | Self::Garbage(_)
            | Self::ErrorReply(_) => true,
            Self::CutBefore | Self::Delay(_) | Self::Hold(_) | Self::DropPush => false,
        }
    }
}

/// An installed rule. Dropping the handle leaves the rule in force.
#[derive(Debug, Clone)]
pub struct Rule {
    state: Arc<Mutex<RuleState>>,
}

#[derive(Debug)]
struct RuleState {
    chooses: Match,
    fault: Fault,
    times: usize,
    matched: usize,
    fired: usize,
}

impl Rule {
    /// Fires `n` times in all instead of once.
    pub fn times(self, n: usize) -> Self {
        self.state.lock().times = n;
        self
    }

    /// Fires on every matching request until [`remove`](Self::remove)d.
    pub fn always(self) -> Self {
        self.times(usize::MAX)
    }

    /// How often the rule has fired.
    pub fn fired(&self) -> usize {
        self.state.lock().fired
    }

    /// Ends the rule. What it holds or delays already stays held.
    pub fn remove(&self) {
        self.state.lock().times = 0;
    }
}

impl RuleState {
    fn meets(&mut self, request: &Request) -> bool {
        if !self.chooses.accepts(request) {
            return false;
        }
        self.matched += 1;
        self.matched >= self.chooses.nth && self.fired < self.times
    }
}

/// The installed rules in their order.
#[derive(Default)]
pub(super) struct Rules {
    installed: Mutex<Vec<Rule>>,
}

impl Rules {
    pub(super) fn install(&self, chooses: Match, fault: Fault) -> Rule {
        let state = RuleState { chooses, fault, times: 1, matched: 0, fired: 0 };
        let rule = Rule { state: Arc::new(Mutex::new(state)) };
        self.installed.lock().push(rule.clone());
        rule
    }

    pub(super) fn clear(&self) {
        self.installed.lock().drain(..).for_each(|rule| rule.remove());
    }

    /// The fault this request meets: that of the first rule that fires.
    pub(super) fn for_request(&self, request: &Request, has_reply: bool) -> Option<Fault> {
        self.first(request, |fault| {
            !matches!(fault, Fault::DropPush) && (has_reply || !fault.needs_reply())
        })
    }

    /// Whether a rule swallows this push.
    pub(super) fn drops_push(&self, push: &Request) -> bool {
        self.first(push, |fault| matches!(fault, Fault::DropPush)).is_some()
    }

    fn first(&self, request: &Request, applies: impl Fn(&Fault) -> bool) -> Option<Fault> {
        let mut chosen = None;
        // Every rule counts the request, also those behind the one that fires: `nth` means the
        // nth on the wire, not the nth that the other rules left over.
        for rule in self.installed.lock().iter() {
            let mut state = rule.state.lock();
            if applies(&state.fault) && state.meets(request) && chosen.is_none() {
                state.fired += 1;
                chosen = Some(state.fault.clone());
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(name: &str, args: &[&str], sql: &str) -> Request {
        Request {
            connection: 1,
            kind: Kind::Request,
            name: name.into(),
            args: args.iter().map(|arg| arg.as_bytes().to_vec()).collect(),
            sql: sql.into(),
        }
    }

    #[test]
    fn matches_by_name_argument_and_sql() {
        let get = request("GET", &["lock:a"], "");
        assert!(Match::any().accepts(&get));
        assert!(Match::command("get").accepts(&get));
        assert!(!Match::command("SET").accepts(&get));
        assert!(Match::command("GET").with_arg(":a").accepts(&get));
        assert!(!Match::command("GET").with_arg(":b").accepts(&get));
        assert!(Match::when(|r| r.args.len() == 1).accepts(&get));
        assert!(!Match::sql("lock").accepts(&get), "sql() is about statements");

        let run = request("EXECUTE", &["orders"], "SELECT 1");
        assert!(Match::sql("SELECT").accepts(&run) && Match::sql("orders").accepts(&run));
        assert!(!Match::sql("INSERT").accepts(&run) && !Match::prepare("SELECT").accepts(&run));
        let prepare = request("PREPARE", &[], "SELECT 1");
        assert!(!Match::sql("SELECT").accepts(&prepare));
        assert!(Match::prepare("SELECT").accepts(&prepare));
    }

    #[test]
    fn a_rule_fires_once_unless_told() {
        let rules = Rules::default();
        let rule = rules.install(Match::any(), Fault::DropReply);
        let ping = request("PING", &[], "");
        assert!(rules.for_request(&ping, true).is_some());
        assert!(rules.for_request(&ping, true).is_none());
        let rule = rule.times(2);
        assert!(rules.for_request(&ping, true).is_some());
        assert!(rules.for_request(&ping, true).is_none());
        let rule = rule.always();
        assert!(rules.for_request(&ping, true).is_some());
        assert_eq!(rule.fired(), 3);
        rule.remove();
        assert!(rules.for_request(&ping, true).is_none());
    }

    #[test]
    fn the_first_rule_wins_and_the_others_still_count() {
        let rules = Rules::default();
        let first = rules.install(Match::any(), Fault::CutBefore);
        let second = rules.install(Match::command("PING").nth(2), Fault::DropReply);
        let ping = request("PING", &[], "");
        assert!(matches!(rules.for_request(&ping, true), Some(Fault::CutBefore)));
        assert!(matches!(rules.for_request(&ping, true), Some(Fault::DropReply)));
        assert_eq!((first.fired(), second.fired()), (1, 1));
    }

    #[test]
    fn a_reply_fault_waits_for_a_request_that_has_a_reply() {
        let rules = Rules::default();
        let rule = rules.install(Match::any(), Fault::DropReply);
        let terminate = request("TERMINATE", &[], "");
        assert!(rules.for_request(&terminate, false).is_none());
        assert_eq!(rule.fired(), 0);
        rules.install(Match::any(), Fault::CutBefore);
        assert!(matches!(rules.for_request(&terminate, false), Some(Fault::CutBefore)));
    }

    #[test]
    fn pushes_meet_only_drop_push() {
        let rules = Rules::default();
        rules.install(Match::any(), Fault::DropReply);
        let push = Request { kind: Kind::Push, ..request("MESSAGE", &["a"], "") };
        assert!(!rules.drops_push(&push));
        rules.install(Match::any().with_arg("b"), Fault::DropPush).always();
        assert!(!rules.drops_push(&push));
        rules.install(Match::any().with_arg("a"), Fault::DropPush);
        assert!(rules.drops_push(&push));
        assert!(!rules.drops_push(&push), "once");
    }

    #[test]
    fn counting_skips_pushes_and_what_nth_passes_over() {
        let ping = request("PING", &[], "");
        let push = Request { kind: Kind::Push, ..ping.clone() };
        let all = [ping.clone(), push, ping.clone(), ping];
        assert_eq!(Match::any().count(all.iter()), 3);
        assert_eq!(Match::any().nth(3).count(all.iter()), 1);
        assert_eq!(Match::any().nth(9).count(all.iter()), 0);
    }
}
