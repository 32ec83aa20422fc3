//! The Go descheduler, asked about snapshots.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use parking_lot::Mutex;
use serde_json::{Value, json};

use usher_tests::descheduling::Objects;
use usher_tests::descheduling::verdict::Answer;

/// A running judge. It ends when it is dropped.
pub struct Judge {
    process: Arc<Mutex<Child>>,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// How a question is asked.
#[derive(Debug, Clone, Copy)]
pub struct Asking {
    /// How often at least, each time with nodes and pods in another order.
    pub least: u32,
    /// How often if the outcomes differ.
    pub most: u32,
    /// With the descheduler's own indexes, as it runs in a cluster.
    pub own_indexes: bool,
}

impl Judge {
    /// Builds it if need be, which takes minutes, and starts it.
    pub fn start() -> Result<Self> {
        let path = usher_testbed::descheduler_judge_path()?;
        let mut process = Command::new(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", path.display()))?;
        let questions = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().context("the judge has no output")?);
        Ok(Self { process: Arc::new(Mutex::new(process)), questions, answers })
    }

    pub fn ask(&mut self, policy: &str, objects: &Objects, asking: Asking) -> Result<Answer> {
        let mut question = objects.to_json();
        question["policy"] = json!(policy);
        question["least"] = json!(asking.least);
        question["most"] = json!(asking.most);
        question["ownIndexes"] = Value::Bool(asking.own_indexes);
        let questions = self.questions.as_mut().context("the judge takes no questions")?;
        serde_json::to_writer(&mut *questions, &question)?;
        questions.write_all(b"\n")?;
        questions.flush()?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the judge ended without an answer");
        Ok(serde_json::from_str(&line)?)
    }

    /// Ends the judge from another thread while it is asked.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.process.clone())
    }
}

pub struct Stopper(Arc<Mutex<Child>>);

impl Stopper {
    pub fn stop(&self) {
        let _ = self.0.lock().kill();
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        // Without questions it ends by itself; one that is at work is ended.
        self.questions.take();
        let mut process = self.process.lock();
        let _ = process.kill();
        let _ = process.wait();
    }
}
