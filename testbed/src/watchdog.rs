//! Nothing outlives its owner, however the owner ends.
//!
//! A small shell process reads process ids from a pipe of which only the owner holds the other end. When the owner
//! is gone, for whatever reason (SIGKILL included), the pipe ends: the watchdog then kills every process it was told
//! of and removes the folder. A process is started through a shell that tells its id *before* it becomes the program,
//! and holds the pipe open until then, so there is no moment in which it could be missed. A parent-death signal would
//! not do: it follows the thread that started the process, and test threads end early.

use crate::Error;
use std::io::{PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// `$1` is the folder. The removal is repeated because a killed process may still be writing its last file.
const WATCH: &str = r#"
while read -r word; do
    case $word in
        done) exit 0 ;;
        *) ids="$ids $word" ;;
    esac
done
for id in $ids; do kill -KILL "$id"; done 2>/dev/null
for attempt in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf -- "$1" 2>/dev/null && exit 0
    sleep 0.2
done
"#;

/// `$0` is the log; standard output is the pipe to the watchdog until the program takes over.
const REGISTER: &str = r#"echo $$; exec "$@" >>"$0" 2>&1"#;

pub(crate) struct Watchdog {
    process: Child,
    pipe: Option<PipeWriter>,
}

impl Watchdog {
    pub(crate) fn start(folder: &Path) -> Result<Self, Error> {
        let (reader, pipe) = std::io::pipe().map_err(Error::io("cannot open a pipe for", folder))?;
        let process = Command::new("/bin/sh")
            .args(["-c", WATCH, "testbed-watchdog"])
            .arg(folder)
            // The folder is removed one day; and Ctrl-C at the terminal must not reach the one who cleans up.
            .current_dir("/")
            .process_group(0)
            .stdin(reader)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::io("cannot run", "/bin/sh"))?;
        Ok(Self { process, pipe: Some(pipe) })
    }

    /// A command that runs `program` under the eyes of the watchdog, its output appended to `log`.
    pub(crate) fn command(&self, program: &Path, log: &Path) -> Result<Command, Error> {
        let pipe = self.pipe.as_ref().map(PipeWriter::try_clone).transpose();
        let pipe = pipe.map_err(Error::io("cannot watch over", program))?;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", REGISTER])
            .arg(log)
            .arg(program)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(pipe.map_or_else(Stdio::null, Stdio::from))
            .stderr(Stdio::null());
        Ok(command)
    }

    /// All processes have ended and the folder is gone: nothing left to watch.
    pub(crate) fn dismiss(&mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            // If it is gone already there is nobody to tell.
            let _ = pipe.write_all(b"done\n");
        }
        let _ = self.process.wait();
    }
}
