//! The figures of Usher, each beside a baseline or an aim: `cargo bench --bench figures -- store` measures one, and without a name all are
//! measured, each in a process of its own. They are one program, as each would take as long to link.

mod descheduler;
mod drain;
mod gateway;
mod life;
mod requests;
mod seeds;
mod store;

use std::process::Command;

use anyhow::{Result, bail, ensure};

type Figure = (&'static str, fn() -> Result<()>);

const FIGURES: [Figure; 7] = [
    ("store", store::main),
    ("life", life::main),
    ("seeds", seeds::main),
    ("requests", requests::main),
    ("drain", drain::main),
    ("gateway", gateway::main),
    ("descheduler", descheduler::main),
];

fn main() -> Result<()> {
    // What cargo says to all benches, before what the caller says or after it.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let Some(first) = arguments.first() else { return each_by_itself() };
    match first.as_str() {
        // Some start this program anew, to measure the memory of a part.
        "serve" | "control" => requests::main(),
        "measure" => descheduler::main(),
        // Where benches are only to be compiled and tried.
        "--test" => Ok(()),
        name => match FIGURES.iter().find(|(known, _)| *known == name) {
            Some((_, measure)) => measure(),
            None => bail!("{name} is none of {}", FIGURES.map(|(known, _)| known).join(", ")),
        },
    }
}

fn each_by_itself() -> Result<()> {
    let mut missed = Vec::new();
    for (name, _) in FIGURES {
        println!("== {name}");
        if !Command::new(std::env::current_exe()?).arg(name).status()?.success() {
            missed.push(name);
        }
    }
    ensure!(missed.is_empty(), "missed or failed: {}", missed.join(", "));
    Ok(())
}
