//! What `/proc` knows about processes: their family, their state, whose port it is.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

use rustix::process::Pid;

/// The part of `/proc/PID/stat` we act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) state: char,
    pub(super) parent: i32,
    /// In ticks since boot. With the pid it names one process for ever, since pids are reused.
    pub(super) started: u64,
}

impl Stat {
    pub(super) fn of(pid: Pid) -> Option<Stat> {
        parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// A zombie has released its memory, files and ports: only its name is left.
    pub(super) fn is_dead(self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    pub(super) fn is_stopped(self) -> bool {
        matches!(self.state, 'T' | 't')
    }
}

/// The program's name is in parentheses and may itself hold spaces and parentheses.
fn parse_stat(line: &str) -> Option<Stat> {
    let fields: Vec<&str> = line[line.rfind(')')? + 1..].split_whitespace().collect();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

pub(super) fn all() -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .collect()
}

/// Children, their children and so on; parents before their children.
pub(super) fn descendants(root: Pid) -> Vec<Pid> {
    let everyone: Vec<(Pid, Stat)> =
        all().into_iter().filter_map(|pid| Some((pid, Stat::of(pid)?))).collect();
    let mut family = vec![root];
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        let children = everyone.iter().filter(|(_, stat)| stat.parent == parent.as_raw_pid());
        family.extend(children.map(|(pid, _)| *pid));
        next += 1;
    }
    family.split_off(1)
}

pub(super) fn command_line(pid: Pid) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim_end_matches('\0').replace('\0', " "))
}

pub(super) fn working_folder(pid: Pid) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/cwd")).ok()
}

/// Whether it is this very process that listens there. An answer on the port alone proves nothing:
/// it may come from a server that won the race for the port.
pub(super) fn listens(pid: Pid, port: u16) -> bool {
    owns(pid, port, |state| state == LISTEN)
}

/// Whether it is this process that has called somebody from that port.
pub(super) fn calls(pid: Pid, port: u16) -> bool {
    owns(pid, port, |state| state != LISTEN)
}

/// The state of a socket that waits for callers, in the kernel's table.
const LISTEN: &str = "0A";

fn owns(pid: Pid, port: u16, state: impl Fn(&str) -> bool) -> bool {
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let sockets = inodes(&table, port, state);
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    files
        .flatten()
        .filter_map(|file| fs::read_link(file.path()).ok())
        .any(|target| target.to_str().is_some_and(|target| sockets.contains(target)))
}

/// The sockets with this local port, as links in `/proc/PID/fd` show them.
fn inodes(table: &str, port: u16, state: impl Fn(&str) -> bool) -> HashSet<String> {
    let local_port = format!(":{port:04X}");
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let wanted = fields.get(1)?.ends_with(&local_port) && state(fields.get(3)?);
            wanted.then(|| format!("socket:[{}]", fields.get(9).copied().unwrap_or_default()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_program_name_may_look_like_fields() {
        let line = "7 (a) R 1 (b) T 42 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9001 0 0";
        assert_eq!(parse_stat(line), Some(Stat { state: 'T', parent: 42, started: 9001 }));
    }

    #[test]
    fn a_port_belongs_to_the_process_that_listens_on_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let me = rustix::process::getpid();
        assert!(listens(me, port) && !calls(me, port));
        let caller = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        assert!(calls(me, caller.local_addr().unwrap().port()));
        drop(listener);
        assert!(!listens(me, port));
    }
}
