use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, getpid};
use tokio::io::AsyncReadExt;

use super::group::Group;
use super::trampoline;

/// A command that is about to start: its process is there, in a group of its own, and waits for
/// the word. See [`trampoline`].
pub(crate) struct Start {
    pub(super) group: Arc<Group>,
    socket: UnixStream,
}

impl Start {
    /// Must be called on a thread that lives as long as the command: it dies with the thread.
    pub(crate) fn prepare(
        command: &[OsString],
        environment: &[(&str, Option<String>)],
    ) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let mut process = Command::new(own_program()?);
        process
            .arg0("lockstep")
            .arg(trampoline::WORD)
            .arg(getpid().as_raw_pid().to_string())
            .args(command)
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(theirs)));
        for (name, value) in environment {
            match value {
                Some(value) => process.env(name, value),
                None => process.env_remove(name),
            };
        }
        let child = process.spawn()?;
        let leader = Pid::from_child(&child);
        Ok(Self { group: Arc::new(Group::new(leader)), socket })
    }

    /// Lets the command run.
    pub(super) fn go(&self) -> io::Result<()> {
        let stdin = io::stdin();
        let files = [stdin.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&files));
        sendmsg(&self.socket, &[IoSlice::new(b"!")], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Resolves when the command has started, or with the reason why it could not.
    pub(super) fn started(
        &self,
    ) -> io::Result<impl Future<Output = Result<(), io::Error>> + use<>> {
        let socket = self.socket.try_clone()?;
        socket.set_nonblocking(true)?;
        let mut socket = tokio::net::UnixStream::from_std(socket)?;
        Ok(async move {
            let mut number = [0; 4];
            match socket.read_exact(&mut number).await {
                Ok(_) => Err(io::Error::from_raw_os_error(i32::from_le_bytes(number))),
                Err(_) => Ok(()),
            }
        })
    }
}

/// This very program, even if its file has been replaced meanwhile.
fn own_program() -> io::Result<std::path::PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}
