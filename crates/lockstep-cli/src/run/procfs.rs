//! Who else is in a process group: Linux only; elsewhere nobody is seen.

use std::collections::HashMap;
use std::fs;

use rustix::process::Pid;

/// What `/proc/PID/stat` says about one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    parent: i32,
    group: i32,
    session: i32,
    dead: bool,
}

/// All processes at about one moment.
pub(crate) struct Processes(HashMap<i32, Process>);

impl Processes {
    pub(crate) fn now() -> Self {
        let Ok(entries) = fs::read_dir("/proc") else { return Self(HashMap::new()) };
        let read = |entry: fs::DirEntry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read(entry.path().join("stat")).ok()?;
            Some((pid, parse(&String::from_utf8_lossy(&stat))?))
        };
        Self(entries.flatten().filter_map(read).collect())
    }

    /// Whether a process of the group lives, other than zombies.
    pub(crate) fn any_alive_in(&self, group: Pid) -> bool {
        let group = group.as_raw_pid();
        self.0.values().any(|process| process.group == group && !process.dead)
    }

    /// Whether somebody beside `me` and those who started it is in its group: the other commands
    /// of a pipeline.
    pub(crate) fn has_company(&self, me: Pid) -> bool {
        let me = me.as_raw_pid();
        let Some(mine) = self.0.get(&me) else { return false };
        let mut family = vec![me];
        while let Some(process) = family.last().and_then(|pid| self.0.get(pid))
            && !family.contains(&process.parent)
        {
            family.push(process.parent);
        }
        let company = |(pid, process): (&i32, &Process)| {
            process.group == mine.group && !process.dead && !family.contains(pid)
        };
        self.0.iter().any(company)
    }

    /// Whether nobody outside the group of `me` is there to continue it when it stops: no shell
    /// with job control, in the words of POSIX an orphaned process group.
    pub(crate) fn is_orphaned(&self, me: Pid) -> bool {
        let Some(mine) = self.0.get(&me.as_raw_pid()) else { return true };
        let cared_for = |process: &Process| {
            let parent = self.0.get(&process.parent);
            parent.is_some_and(|p| p.session == mine.session && p.group != mine.group)
        };
        !self.0.values().any(|process| process.group == mine.group && cared_for(process))
    }
}

/// `PID (NAME) STATE PPID PGRP SESSION …`, where the name may contain anything.
fn parse(stat: &str) -> Option<Process> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let dead = matches!(fields.next()?, "Z" | "X");
    let mut number = || fields.next()?.parse().ok();
    Some(Process { parent: number()?, group: number()?, session: number()?, dead })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).unwrap()
    }

    /// (pid, parent, group, session)
    fn processes(list: &[(i32, i32, i32, i32)]) -> Processes {
        let process =
            |&(pid, parent, group, session)| (pid, Process { parent, group, session, dead: false });
        Processes(list.iter().map(process).collect())
    }

    #[test]
    fn names_cannot_confuse_the_reader() {
        let expected = Process { parent: 4, group: 5, session: 6, dead: true };
        assert_eq!(parse("3 (a) R (b) Z 4 5 6 0 -1"), Some(expected));
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_pipeline_is_company_and_a_script_is_not() {
        let shell = (10, 1, 10, 10);
        let alone = processes(&[shell, (20, 10, 20, 10)]);
        assert!(!alone.has_company(pid(20)));
        let script = processes(&[shell, (19, 10, 19, 10), (20, 19, 19, 10)]);
        assert!(!script.has_company(pid(20)));
        let pipeline = processes(&[shell, (20, 10, 20, 10), (21, 10, 20, 10)]);
        assert!(pipeline.has_company(pid(20)));
    }

    #[test]
    fn a_group_is_cared_for_by_a_shell_of_its_session() {
        let shell = (10, 1, 10, 10);
        let script = processes(&[(1, 0, 1, 1), shell, (19, 10, 19, 10), (20, 19, 19, 10)]);
        assert!(!script.is_orphaned(pid(20)));
        let leader = processes(&[(1, 0, 1, 1), (20, 1, 20, 20)]);
        assert!(leader.is_orphaned(pid(20)));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_seen() {
        assert!(Processes::now().any_alive_in(rustix::process::getpgrp()));
    }
}
