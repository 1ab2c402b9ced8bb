//! Locks between the processes of one machine, in one SQLite file.
//!
//! Every verb is one transaction that does what [`lockstep_lock::queue`] does in memory. A holder
//! that gives back passes the lock to the first waiter in the same transaction, and wakes that
//! waiter alone through a named pipe; nobody polls.
//!
//! **Leases** are judged by the machine's clock since boot, never by the wall clock: setting the
//! time or sleeping changes nothing. After a restart of the machine all leases are void, because
//! nobody who held one can be alive.
//!
//! **Tokens** never repeat as long as the file is kept, even when the power fails. Their upper 32
//! bits are an epoch that is raised once per boot and is on the disk before the first grant; the
//! lower ones count the grants of a lock. So `synchronous=normal`, which may lose the last commits
//! with the power, cannot give the same token twice: the lost ones were of an epoch that is over.
//! Give `synchronous=full` if the disk can lose writes while the machine keeps running (a
//! removable or remote one).
//!
//! **What it is not for**: files on a network file system, files shared with another kernel (a
//! virtual machine, a sandbox) and files that are copied, replaced or deleted while in use.
//!
//! What is where: `config` reads URLs, `file` and `open` make the file ours, `boot` settles the
//! epoch, `tx`, `row`, `table` and `inspect` are the verbs, `store` decides on which thread they run and how
//! long they wait, `wake` has the pipes, `error` says what an error means. Rows and queues change
//! in `sql/*.sql` and nowhere else.

mod boot;
mod config;
mod error;
mod file;
mod inspect;
mod open;
mod row;
mod store;
mod table;
mod tx;
mod wake;

use std::path::Path;
use std::sync::Arc;

use lockstep_core::StoreError;
use lockstep_core::time::Clock;
use lockstep_lock::clock::SystemClock;
use lockstep_lock::queue::{TTL_MAX, TTL_MIN};
use lockstep_lock::store::{Connect, LockStore, Verb};
use lockstep_lock::{Fencing, Inbox, Origin, Scope, StoreFacts};

use config::Config;
use error::STORE;
use store::{Lane, Patience, on_thread};
use table::Table;
use wake::{Letterbox, Post};

/// Locks in one SQLite file. Its clones are the same store, and so are all values with the same
/// file and prefix, in whatever process.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("locks.db");
/// use lockstep_lock::Locks;
/// use lockstep_sql::sqlite::Sqlite;
///
/// let locks = Locks::open(Sqlite::at(&path)?).await?;
/// let guard = locks.lock("report").await?;
///
/// let other = Locks::open(Sqlite::at(&path)?).await?;
/// assert!(other.try_lock("report").await?.is_none());
/// guard.release().await?;
/// # Ok::<(), lockstep_lock::LockError>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Sqlite {
    config: Config,
    clock: Arc<dyn Clock>,
    boot: Option<String>,
    post: Arc<Post>,
}

impl Sqlite {
    /// The store that a URL names: `sqlite:PATH` or `sqlite:///ABSOLUTE/PATH`, percent-encoded.
    ///
    /// Parameters: `prefix` keeps the locks of several programs apart in one file;
    /// `synchronous=full` waits for the disk at every grant (the default is `normal`).
    ///
    /// # Errors
    /// The URL is not understood.
    ///
    /// ```
    /// use lockstep_sql::sqlite::Sqlite;
    ///
    /// assert!(Sqlite::from_url("sqlite:///var/lib/shop/locks.db?prefix=shop").is_ok());
    /// let error = Sqlite::from_url("sqlite:locks.db?timeout=5").err().unwrap();
    /// assert!(error.to_string().contains("prefix, synchronous"));
    /// ```
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        Config::parse(url).map(Self::new)
    }

    /// The store in the file at `path`. The file is made when the store is opened, readable for
    /// its owner only; its folder must exist.
    ///
    /// # Errors
    /// The path is empty.
    pub fn at(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Config::at(path.as_ref()).map(Self::new)
    }

    /// The same, and the missing folders on the way to the file are made at once, for their owner
    /// only. For places that the program chose itself: a folder that a person has named and that
    /// does not exist is more likely a slip.
    ///
    /// # Errors
    /// The path is empty, or a folder cannot be made.
    pub fn open_or_create_dirs(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let config = Config::at(path.as_ref())?;
        file::create_folders(&config.path)?;
        Ok(Self::new(config))
    }

    /// The statements that make the tables, for people who want to see them first. Opening a
    /// store runs them by itself.
    pub const fn schema_sql() -> &'static str {
        open::SCHEMA
    }

    /// The same store judged by another clock, for tests.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The same store on what claims to be another boot of the machine, for tests.
    #[must_use]
    pub fn with_boot_id(mut self, boot: impl Into<String>) -> Self {
        self.boot = Some(boot.into());
        self
    }

    fn new(config: Config) -> Self {
        Self { config, clock: Arc::new(SystemClock), boot: None, post: Arc::default() }
    }

    /// Cancel safe: a file that was made stays.
    async fn open_lane(&self, inbox: Option<Inbox>) -> Result<Lane, StoreError> {
        let boot = match &self.boot {
            Some(boot) => boot.clone(),
            None => boot::boot_id()?,
        };
        let mut patience = Patience::default();
        let opened = loop {
            let (config, boot) = (self.config.clone(), boot.clone());
            match on_thread(move || open::open(&config, &boot)).await {
                Ok(opened) => break opened,
                Err(failure) => patience.after(failure).await?,
            }
        };
        let mut warnings = Vec::from_iter(file::file_system_warning(&opened.path));
        warnings.extend(boot::clock_warning());
        let wake_folder = wake::folder(&opened.path);
        let mut push = true;
        let letterbox = inbox.map(|inbox| {
            let (letterbox, error) = Letterbox::open(Arc::clone(&self.post), &wake_folder, inbox);
            if let Some(error) = error {
                push = false;
                warnings.push(format!(
                    "no pipe in {} ({error}): waiters ask at intervals",
                    wake_folder.display()
                ));
            }
            letterbox
        });
        let facts = StoreFacts {
            store: STORE,
            fencing: Fencing::Strong,
            scope: Scope::Machine,
            fair: true,
            shared: true,
            deadlocks: true,
            push,
            ends_with_connection: false,
            hands_over: true,
            clock: "this machine's CLOCK_BOOTTIME, within one boot",
            ttl_min: TTL_MIN,
            ttl_max: TTL_MAX,
            two_holders_if: "a network file system, a file shared with another kernel, or the \
                             file copied or deleted while in use",
            warnings,
            origin: Origin { id: None, prefix: self.config.tenant.prefix().to_owned() },
        };
        let table = Table::new(opened, self.config.clone(), Arc::clone(&self.clock), boot);
        Ok(Lane::new(table, Arc::clone(&self.post), wake_folder, letterbox, facts))
    }
}

impl Connect for Sqlite {
    fn open<'a>(&'a self, inbox: Option<Inbox>) -> Verb<'a, Arc<dyn LockStore>> {
        Box::pin(async move {
            let lane = self.open_lane(inbox).await?;
            Ok(Arc::new(lane) as Arc<dyn LockStore>)
        })
    }
}
