//! What runs in the new process before the user's command.
//!
//! The command shall die with lockstep, even if that is killed with SIGKILL. Only the new process
//! itself can ask the kernel for that, and without unsafe code none of ours can run between fork
//! and exec. So lockstep starts itself once more, and that second self asks, and then becomes the
//! command.
//!
//! Its stdin is a socket to the first self, which sends the real stdin when the command may
//! start, and hears why it could not. The socket closes by itself when the command starts, which
//! is how the first self knows that it has.

use std::ffi::OsString;
use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::Pid;

use crate::exit::Code;

/// The first argument of the second self. Not in `--help`: it is of no use to anybody else.
pub(super) const WORD: &str = "__run";

/// The second self's arguments.
pub(crate) struct Call {
    parent: Option<Pid>,
    command: Vec<OsString>,
}

impl Call {
    pub(crate) fn from_args(args: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut args = args.skip(1);
        if args.next()? != WORD {
            return None;
        }
        let parent = args.next().and_then(|pid| pid.to_str()?.parse().ok()).and_then(Pid::from_raw);
        Some(Self { parent, command: args.collect() })
    }

    /// Becomes the command; returns only if that fails.
    pub(crate) fn jump(self) -> ExitCode {
        let [program, arguments @ ..] = self.command.as_slice() else {
            return Code::USAGE.into();
        };
        let Ok(mut socket) = self.prepare() else {
            // Nobody is there who could be told.
            return Code::CANNOT_EXECUTE.into();
        };
        let error = Command::new(program).args(arguments).exec();
        let number = error.raw_os_error().unwrap_or(0);
        let _ = socket.write_all(&number.to_le_bytes());
        Code::CANNOT_EXECUTE.into()
    }

    /// Ties this process to its parent, and puts the real stdin in place.
    fn prepare(&self) -> io::Result<UnixStream> {
        #[cfg(target_os = "linux")]
        {
            use rustix::process::{Signal, getppid, set_parent_process_death_signal};
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // It may have died just before, and then no signal will come.
            if self.parent.is_none() || getppid() != self.parent {
                return Err(io::ErrorKind::NotConnected.into());
            }
        }
        let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        let stdin = receive(&socket)?;
        rustix::stdio::dup2_stdin(&stdin)?;
        Ok(UnixStream::from(socket))
    }
}

/// Waits for the file that was sent; an error if the other side is gone.
fn receive(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut buffers = [IoSliceMut::new(&mut byte)];
    recvmsg(socket, &mut buffers, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    file.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
