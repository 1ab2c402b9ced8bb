//! The last net: ends what a killed test could not end itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, getpid, kill_process};

use super::procfs::{self, Stat};
use super::{postgres, process};

const SWEEP_LIMIT: Duration = Duration::from_secs(20);

/// Ends every process that works *inside* this folder and returns how many there were.
///
/// Every server here has its working folder inside its own data folder, so the one folder that
/// holds all of a run's data also names all of its servers, however they lost their parents. The
/// folder must belong to that run alone.
pub fn sweep(folder: &Path) -> Result<usize> {
    let folder = folder.canonicalize().context("cannot sweep a folder that is not there")?;
    ensure!(folder.components().count() > 2, "{} is too wide to sweep", folder.display());
    let mut ended = Vec::new();
    let nobody_left = || {
        let inside = working_in(&folder);
        for pid in &inside {
            let _ = kill_process(*pid, Signal::KILL);
        }
        let none_found = inside.is_empty();
        ended.extend(inside);
        // A dying process leaves its folder before it is dead.
        let dead = |pid: &Pid| Stat::of(*pid).is_none_or(Stat::is_dead);
        Ok((none_found && ended.iter().all(dead)).then_some(()))
    };
    process::wait_for(SWEEP_LIMIT, nobody_left)?
        .with_context(|| format!("processes in {} survive SIGKILL", folder.display()))?;
    for data in clusters_below(&folder, 6) {
        postgres::release_shared_memory(&data);
    }
    ended.sort_unstable_by_key(|pid| pid.as_raw_pid());
    ended.dedup();
    Ok(ended.len())
}

fn working_in(folder: &Path) -> Vec<Pid> {
    let inside = |pid: &Pid| {
        procfs::working_folder(*pid).is_some_and(|at| at != folder && at.starts_with(folder))
    };
    procfs::all().into_iter().filter(|pid| *pid != getpid()).filter(inside).collect()
}

/// Folders with the lock file of a PostgreSQL. Links are not followed.
fn clusters_below(folder: &Path, depth: usize) -> Vec<PathBuf> {
    if folder.join("postmaster.pid").is_file() {
        return vec![folder.to_owned()];
    }
    let Some(depth) = depth.checked_sub(1) else { return Vec::new() };
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .flat_map(|entry| clusters_below(&entry.path(), depth))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::servers::{Home, PostgresOptions, PostgresServer};

    #[test]
    fn only_what_works_inside_is_ended() {
        let run = tempfile::tempdir().unwrap();
        let inner = run.path().join("server");
        fs::create_dir(&inner).unwrap();
        let sleeper = |folder: &Path| {
            Command::new("setpriv")
                .args(["--pdeathsig", "KILL", "sleep", "1000"])
                .current_dir(folder)
                .spawn()
                .unwrap()
        };
        let mut inside = sleeper(&inner);
        let mut outside = sleeper(run.path());
        // Reaped beside the sweep, as init does with real orphans.
        let reaper = std::thread::spawn(move || inside.wait().unwrap());
        assert_eq!(sweep(run.path()).unwrap(), 1);
        assert!(!reaper.join().unwrap().success());
        assert!(outside.try_wait().unwrap().is_none());
        outside.kill().unwrap();
        outside.wait().unwrap();
    }

    #[test]
    fn backends_of_a_paused_server_are_found_without_their_postmaster() {
        let run = tempfile::tempdir().unwrap();
        let home = Home::at(run.path().join("postgres"));
        let options = PostgresOptions { home, ..PostgresOptions::default() };
        // The temporary folder of this test is private, and the server runs as another user.
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(run.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut server = PostgresServer::start_with(options).unwrap();
        server.pause().unwrap();
        let postmaster = process::as_pid(server.pid()).unwrap();
        let backends = procfs::descendants(postmaster);
        kill_process(postmaster, Signal::KILL).unwrap(); // as its parent's death would
        let dead = || Stat::of(postmaster).is_none_or(Stat::is_dead);
        process::wait_for(SWEEP_LIMIT, || Ok(dead().then_some(()))).unwrap().unwrap();
        drop(server);
        let left = |pid: &Pid| Stat::of(*pid).is_some_and(|stat| !stat.is_dead());
        assert!(backends.iter().any(left), "nothing was left to sweep");
        assert!(sweep(run.path()).unwrap() > 0);
        assert!(!backends.iter().any(left));
    }

    #[test]
    fn a_wide_folder_is_refused() {
        assert!(sweep(Path::new("/")).is_err());
        assert!(sweep(Path::new("/tmp")).is_err());
    }
}
