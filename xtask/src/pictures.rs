//! `cargo xtask pictures`: sequences of the guide, drawn from what real servers did.

use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::child::{self, Stubborn};
use crate::interrupt::Interrupt;
use crate::workspace::{cargo, root};

/// What a play has written down.
#[derive(Debug, Deserialize)]
struct Event {
    message: String,
    at_ns: u64,
    client: Option<usize>,
    node: Option<usize>,
    vote: Option<String>,
    outcome: Option<String>,
    until_ns: Option<u64>,
}

const PICTURES: [(&str, &str, &str); 2] = [
    ("without", "redlock-two-holders.svg", "Without the delay: C has forgotten, and votes"),
    ("with-the-delay", "redlock-refused.svg", "With it: C was started lately, and does not count"),
];

pub(crate) fn run() -> Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let plays = tempfile::Builder::new().prefix("lockstep-pictures-").tempdir()?;
    let words = ["test", "-p", "lockstep-redis", "--test", "pictures", "--", "--ignored"];
    let mut command = cargo(words);
    command.env("LOCKSTEP_PICTURES", plays.path());
    child::run(&interrupt, command, Stubborn::Kill)?;
    let folder = root().join("docs").join("guide").join("pictures");
    fs::create_dir_all(&folder)?;
    for (play, file, title) in PICTURES {
        let text = fs::read_to_string(plays.path().join(format!("{play}.json")))?;
        let events: Vec<Event> =
            serde_json::from_str(&text).context("a play that cannot be read")?;
        let picture = draw(title, &events)?;
        fs::write(folder.join(file), picture)?;
        println!("docs/guide/pictures/{file}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Where the columns are: client 1, the nodes, client 2.
const CLIENTS: [f64; 2] = [110.0, 830.0];
const NODES: [&str; 5] = ["A", "B", "C", "D", "E"];
const WIDTH: f64 = 960.0;
const ROW: f64 = 24.0;
const TOP: f64 = 78.0;

fn node_x(node: usize) -> f64 {
    270.0 + 100.0 * node as f64
}

/// One line of the picture.
enum Line {
    Ask { at_ns: u64, client: usize, node: usize, vote: Option<String> },
    Settled { at_ns: u64, client: usize, granted: bool },
    Restart { at_ns: u64, node: usize },
}

impl Line {
    fn at_ns(&self) -> u64 {
        match self {
            Self::Ask { at_ns, .. } | Self::Settled { at_ns, .. } | Self::Restart { at_ns, .. } => {
                *at_ns
            }
        }
    }
}

fn draw(title: &str, events: &[Event]) -> Result<String> {
    let lines = lines(events);
    ensure!(lines.len() > 10, "too little happened");
    let start = events[0].at_ns;
    let y = |row: usize| TOP + ROW * (row as f64 + 1.5);
    let bottom = y(lines.len()) + 8.0;
    let mut svg = String::new();
    let height = bottom + 62.0;
    writeln!(
        svg,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="Helvetica, Arial, sans-serif" font-size="13">
<style>.life{{stroke:#b8bec8}}.ok{{stroke:#1a7f37;fill:#1a7f37}}.no{{stroke:#6e7781;fill:#6e7781}}.bad{{stroke:#c4320a;fill:#c4320a}}text{{stroke:none;fill:#1f2328}}.small{{font-size:11px;fill:#57606a}}.head{{font-weight:bold}}</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="context-stroke"/></marker></defs>
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="24" y="26" font-size="16" class="head">{title}</text>"##
    )?;
    let columns = CLIENTS.iter().enumerate().map(|(n, x)| (*x, format!("client {}", n + 1)));
    let nodes = NODES.iter().enumerate().map(|(n, name)| (node_x(n), format!("Redis {name}")));
    for (x, name) in columns.chain(nodes) {
        writeln!(
            svg,
            r#"<text x="{x}" y="{}" text-anchor="middle" class="head">{name}</text>"#,
            TOP - 12.0
        )?;
        writeln!(svg, r#"<line x1="{x}" x2="{x}" y1="{TOP}" y2="{bottom}" class="life"/>"#)?;
    }
    for (row, line) in lines.iter().enumerate() {
        show(&mut svg, line, y(row), start)?;
    }
    trusts(&mut svg, events, &lines, bottom, &y)?;
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// The first round of each client, its verdict, and the restart, in the order of time.
fn lines(events: &[Event]) -> Vec<Line> {
    let of = |client: usize, message: &'static str| {
        events.iter().filter(move |event| event.client == Some(client) && event.message == message)
    };
    let mut lines = vec![];
    for client in [1, 2] {
        let from = lines.len();
        let first_end = of(client, "settles").next().map_or(u64::MAX, |event| event.at_ns);
        for ask in of(client, "asks").filter(|ask| ask.at_ns < first_end) {
            let vote =
                of(client, "votes").find(|vote| vote.node == ask.node && vote.at_ns <= first_end);
            let (at_ns, node) = (vote.map_or(ask.at_ns, |vote| vote.at_ns), ask.node.unwrap_or(0));
            let vote = vote.and_then(|event| event.vote.clone());
            lines.push(Line::Ask { at_ns, client, node, vote });
        }
        // Those who have not answered are drawn from when they were asked.
        lines[from..].sort_by_key(Line::at_ns);
        if let Some(last) = of(client, "settles").next_back() {
            let granted = last.outcome.as_ref().is_some_and(|words| words.starts_with("Granted"));
            // The rounds in between are more of the same.
            lines.push(Line::Settled { at_ns: last.at_ns, client, granted });
        }
        if client == 1 {
            let restarts = events.iter().filter(|event| event.message == "restarts");
            lines.extend(
                restarts.map(|event| Line::Restart {
                    at_ns: event.at_ns,
                    node: event.node.unwrap_or(2),
                }),
            );
        }
    }
    lines
}

fn show(svg: &mut String, line: &Line, y: f64, start: u64) -> Result<()> {
    let ms = line.at_ns().saturating_sub(start) as f64 / 1e6;
    writeln!(
        svg,
        r#"<text x="{}" y="{}" text-anchor="end" class="small">{ms:.1} ms</text>"#,
        62.0,
        y + 4.0
    )?;
    match line {
        Line::Ask { client, node, vote, .. } => {
            let (from, to) = (CLIENTS[client - 1], node_x(*node));
            let (class, dash, words) = match vote.as_deref() {
                Some("Granted") => ("ok", "", "OK".to_owned()),
                Some(vote) if vote.starts_with("Refused") => {
                    ("no", "", "held by client 1".to_owned())
                }
                Some(vote) if vote.contains("started lately") => {
                    ("bad", "", "OK, but started lately: does not count".to_owned())
                }
                Some(_) => ("no", r#" stroke-dasharray="4 3""#, "no answer yet".to_owned()),
                None => ("no", r#" stroke-dasharray="4 3""#, "no answer yet".to_owned()),
            };
            writeln!(
                svg,
                r#"<line x1="{from}" x2="{to}" y1="{y}" y2="{y}" class="{class}"{dash} stroke-width="1.6" marker-end="url(#tip)"/>"#
            )?;
            let (x, anchor) = match client {
                1 => (to + 8.0, "start"),
                _ => (to - 8.0, "end"),
            };
            writeln!(
                svg,
                r##"<text x="{x}" y="{}" text-anchor="{anchor}" class="small" style="paint-order:stroke;stroke:#fff;stroke-width:4px">{words}</text>"##,
                y + 4.0
            )?;
        }
        Line::Settled { client, granted, .. } => {
            let x = CLIENTS[client - 1];
            let (class, words) = if *granted { ("ok", "holds it") } else { ("bad", "refused") };
            writeln!(
                svg,
                r##"<rect x="{}" y="{}" width="76" height="19" rx="4" class="{class}"/><text x="{x}" y="{}" text-anchor="middle" style="fill:#fff">{words}</text>"##,
                x - 38.0,
                y - 10.0,
                y + 4.0
            )?;
        }
        Line::Restart { node, .. } => {
            let x = node_x(*node);
            writeln!(
                svg,
                r##"<rect x="{}" y="{}" width="206" height="19" rx="4" class="bad"/><text x="{x}" y="{}" text-anchor="middle" style="fill:#fff">killed, started again: empty</text>"##,
                x - 103.0,
                y - 10.0,
                y + 4.0
            )?;
        }
    }
    Ok(())
}

/// Beside each client's line, from its grant on: it trusts its lock.
fn trusts(
    svg: &mut String,
    events: &[Event],
    lines: &[Line],
    bottom: f64,
    y: &dyn Fn(usize) -> f64,
) -> Result<()> {
    let mut holders = 0;
    for client in [1, 2] {
        let trust =
            events.iter().find(|event| event.message == "trusts" && event.client == Some(client));
        let row = lines
            .iter()
            .position(|line| matches!(line, Line::Settled { client: c, .. } if *c == client));
        if let (Some(_), Some(row)) = (trust, row) {
            holders += 1;
            let (x, from) = (CLIENTS[client - 1], y(row));
            writeln!(
                svg,
                r#"<line x1="{x}" x2="{x}" y1="{}" y2="{bottom}" class="ok" stroke-width="7" opacity="0.45"/>"#,
                from + 9.0
            )?;
        }
    }
    let until = |client| {
        events
            .iter()
            .find(|e| e.message == "trusts" && e.client == Some(client))
            .and_then(|e| e.until_ns)
    };
    let last = events.last().map_or(0, |event| event.at_ns);
    let words = match (holders, until(1)) {
        (2, Some(until)) => format!(
            "Two holders: client 1 trusts its lock for another {:.1} s, and so does client 2.",
            until.saturating_sub(last) as f64 / 1e9
        ),
        (_, Some(until)) => format!(
            "One holder: client 1 trusts its lock for another {:.1} s; client 2 may ask again.",
            until.saturating_sub(last) as f64 / 1e9
        ),
        _ => String::new(),
    };
    writeln!(svg, r#"<text x="24" y="{}" class="head">{words}</text>"#, bottom + 26.0)?;
    let ttl = "ttl 3 s, max_ttl 3 s; recorded from a run with five redis-server processes by cargo xtask pictures. D and E were cut off from client 1.";
    writeln!(svg, r#"<text x="24" y="{}" class="small">{ttl}</text>"#, bottom + 46.0)?;
    Ok(())
}
