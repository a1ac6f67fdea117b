//! An upstream that is a command: one message a line, started again when it dies.

use std::ffi::OsString;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::{Mutex, Notify};

use super::lines::{Line, Lines, one_line};
use super::link::Link;
use super::message;
use crate::limits;
use crate::time::Time;
use crate::transport::{Fault, Loss};

/// A command that speaks MCP on its standard input and output.
#[derive(Debug)]
pub(crate) struct Child {
    command: Vec<OsString>,
    life: Mutex<Life>,
    generation: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Life {
    running: Option<Running>,
    /// Starts in a row after which no sensible word was heard.
    starts: u32,
    last_start: Option<Duration>,
}

#[derive(Debug)]
struct Running {
    stdin: ChildStdin,
    generation: u64,
    signs: Arc<Signs>,
}

/// What the reader of a child and its writers tell each other.
#[derive(Debug, Default)]
struct Signs {
    dead: AtomicBool,
    spoke: AtomicBool,
    kill: Notify,
    gone: Notify,
}

impl Child {
    pub(crate) fn new(command: Vec<OsString>) -> Self {
        Self { command, life: Mutex::default(), generation: Arc::default() }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn spawn(&self) -> std::io::Result<tokio::process::Child> {
        let (program, arguments) = self.command.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
        Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
    }

    /// Closes its input, and waits a little for it to leave.
    pub(crate) async fn end(&self, time: &dyn Time) {
        let running = self.life.lock().await.running.take();
        let Some(Running { stdin, signs, .. }) = running else { return };
        drop(stdin);
        tokio::select! {
            () = signs.gone.notified() => {}
            () = time.sleep(limits::LEAVE) => signs.kill.notify_one(),
        }
    }
}

impl Life {
    /// The child is dead. One that had spoken may be started again at once.
    fn over(&mut self) {
        let spoke = |running: Running| running.signs.spoke.load(Ordering::Acquire);
        if self.running.take().is_some_and(spoke) {
            self.starts = 0;
        }
    }

    /// How long to wait before the next start.
    fn pause(&self, now: Duration) -> Option<Duration> {
        let last = self.last_start?;
        if self.starts == 0 {
            return None;
        }
        let pause = limits::FIRST_PAUSE * 2_u32.saturating_pow(self.starts - 1);
        let pause = pause.min(limits::LONGEST_PAUSE).saturating_sub(now.saturating_sub(last));
        (!pause.is_zero()).then_some(pause)
    }
}

impl Link {
    /// Writes one line, to a child that is started if it must be. `register` is told which life of it the line goes
    /// to, before it does.
    pub(crate) async fn to_child(
        self: &Arc<Self>,
        child: &Child,
        text: &str,
        register: impl FnOnce(u64),
    ) -> Result<(), Fault> {
        let mut life = child.life.lock().await;
        if life.running.as_ref().is_some_and(|running| running.signs.dead.load(Ordering::Acquire)) {
            life.over();
        }
        if life.running.is_none() {
            self.start(child, &mut life).await?;
        }
        let Some(running) = &mut life.running else { return Err(Fault::NotSent) };
        register(running.generation);
        let written = write(&*self.time, running, text).await;
        // Its reader may have gone before it could know of this message.
        if written.is_err() || running.signs.dead.load(Ordering::Acquire) {
            running.signs.kill.notify_one();
            self.fell(running.generation, Loss::Broken);
            life.over();
            return Err(Fault::Lost(Loss::Broken));
        }
        Ok(())
    }

    async fn start(self: &Arc<Self>, child: &Child, life: &mut Life) -> Result<(), Fault> {
        if let Some(pause) = life.pause(self.time.elapsed()) {
            if life.starts >= limits::STARTS {
                return Err(Fault::NotSent);
            }
            self.time.sleep(pause).await;
        }
        life.starts = life.starts.saturating_add(1);
        life.last_start = Some(self.time.elapsed());
        let mut process = match child.spawn() {
            Ok(process) => process,
            Err(error) => {
                tracing::warn!(%error, "the upstream does not start");
                return Err(Fault::NotSent);
            }
        };
        let (Some(stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(Fault::NotSent);
        };
        let generation = child.generation.fetch_add(1, Ordering::AcqRel) + 1;
        let signs = Arc::new(Signs::default());
        tokio::spawn(Arc::clone(self).hear(process, stdout, generation, Arc::clone(&signs)));
        let mut running = Running { stdin, generation, signs };
        if let Err(fault) = self.greet(&mut running).await {
            running.signs.kill.notify_one();
            return Err(fault);
        }
        life.running = Some(running);
        Ok(())
    }

    /// A child that replaces a dead one is told how the conversation began.
    async fn greet(self: &Arc<Self>, running: &mut Running) -> Result<(), Fault> {
        let Some(greeting) = self.greeting() else { return Ok(()) };
        let id = self.next_id();
        let hello = message::request(id, "initialize", &greeting.params);
        let answer = self.expect(&id.to_string(), running.generation);
        write(&*self.time, running, &hello).await?;
        let answer = tokio::select! {
            answer = answer => answer.unwrap_or(Err(Fault::NotSent)),
            () = self.time.sleep(limits::GREETING) => Err(Fault::NotSent),
        };
        // The message that the start is for has not left.
        answer.map_err(|_| Fault::NotSent)?;
        write(&*self.time, running, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}").await
    }

    /// Reads what a child says, to its end.
    async fn hear(
        self: Arc<Self>,
        mut process: tokio::process::Child,
        stdout: ChildStdout,
        generation: u64,
        signs: Arc<Signs>,
    ) {
        let mut lines = Lines::new(BufReader::new(stdout), limits::ANSWER);
        let (mut rubbish, mut loss) = (0, Loss::Broken);
        while rubbish < limits::RUBBISH {
            let line = tokio::select! {
                line = lines.next() => line,
                () = signs.kill.notified() => break,
            };
            match line {
                Ok(Line::Text(text)) if self.arrived(&text, generation, None).await => {
                    signs.spoke.store(true, Ordering::Release);
                    rubbish = 0;
                }
                Ok(Line::Text(_) | Line::NotText) => {
                    rubbish += 1;
                    tracing::warn!("the upstream wrote a line that is no message");
                }
                Ok(Line::TooLong) => {
                    tracing::warn!("the upstream wrote a line larger than {} bytes", limits::ANSWER);
                    loss = Loss::TooLarge;
                    break;
                }
                Ok(Line::End) | Err(_) => break,
            }
        }
        signs.dead.store(true, Ordering::Release);
        self.fell(generation, loss);
        let _ended_already = process.start_kill();
        let _status = process.wait().await;
        signs.gone.notify_one();
    }
}

async fn write(time: &dyn Time, running: &mut Running, text: &str) -> Result<(), Fault> {
    let line = [one_line(text).as_bytes(), b"\n"].concat();
    let written = async {
        running.stdin.write_all(&line).await?;
        running.stdin.flush().await
    };
    tokio::select! {
        written = written => written.map_err(|_| Fault::Lost(Loss::Broken)),
        () = time.sleep(limits::GREETING) => Err(Fault::Lost(Loss::Late)),
    }
}
