//! ZooKeeper: the raw requests of Java's own client, and Curator beside them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lockstep_testkit::servers::{JavaProgram, ZooKeeperOptions, ZooKeeperServer};

use super::ours;
use crate::measure::{Options, Rate};
use crate::table::{Goal, Table};

/// A virtual machine needs a while until it is as fast as it can be.
const WARM_UP: Duration = Duration::from_secs(2);

pub(crate) fn rows(options: &Options, table: &mut Table) -> Result<()> {
    // It takes seconds to start, so not for rows that nobody wants.
    if options.only.as_ref().is_some_and(|only| !"zookeeper curator".contains(first_word(only))) {
        return Ok(());
    }
    let as_in_production = true;
    let server =
        ZooKeeperServer::start(ZooKeeperOptions { as_in_production, ..Default::default() })?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("java/ZooKeeperBench.java");
    let java = Java { program: JavaProgram::compile(&source)?, servers: server.addr().to_string() };
    let (url, time) = (server.url(), options.time);
    for clients in [1, 8, 64] {
        table.row(
            options,
            &format!("zookeeper, free, {clients} / raw create+list+delete"),
            Goal::AtLeast(1.0),
            || java.rate("raw", clients, time),
            || ours::free(&url, clients, time),
        )?;
        table.row(
            options,
            &format!("curator, free, {clients} / raw create+list+delete"),
            Goal::Shown,
            || java.rate("raw", clients, time),
            || java.rate("free", clients, time),
        )?;
    }
    table.row(
        options,
        "zookeeper, 8 on one lock / curator",
        Goal::AtLeast(1.5),
        || java.rate("contended", 8, time),
        || ours::contended(&url, 8, time),
    )?;
    // What the layout of the introductions costs: everybody is woken for each hand-over.
    let basic = format!("{url}?layout=basic&prefix=basic");
    for clients in [8, 64] {
        table.row(
            options,
            &format!("zookeeper basic, {clients} contend / fair"),
            Goal::Shown,
            || ours::contended(&url, clients, time),
            || ours::contended(&basic, clients, time),
        )?;
    }
    ours::readers(options, table, "zookeeper", &url)
}

fn first_word(text: &str) -> &str {
    text.split([',', ' ']).next().unwrap_or(text)
}

struct Java {
    program: JavaProgram,
    servers: String,
}

impl Java {
    fn rate(&self, kind: &str, threads: usize, time: Duration) -> Result<Rate> {
        let workers = threads;
        let numbers = [threads as u128, WARM_UP.as_millis(), time.as_millis()];
        let [threads, warm_up, time] = numbers.map(|number| number.to_string());
        let words = [kind, &self.servers, &threads, &warm_up, &time];
        let output = self.program.command(&words)?.output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "the Java side failed: {said}");
        let (per_second, evenness) = said.trim().split_once(' ').context("two numbers")?;
        Ok(Rate { per_second: per_second.parse()?, evenness: evenness.parse()?, workers })
    }
}
