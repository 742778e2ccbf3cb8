//! `sess man`: the manual pages, made from the same definitions as the help.

use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::{
    cli::Cli,
    output::{Output, Usage},
};

pub fn run(output: &Output, command: Option<&str>) -> anyhow::Result<ExitCode> {
    let mut root = Cli::command();
    root.build();
    let page = match command {
        None => root,
        Some(name) => {
            let found = root.find_subcommand(name).cloned();
            found.ok_or_else(|| Usage(format!("there is no command \"{name}\"; `sess --help` lists them")))?
        }
    };
    let mut roff = Vec::new();
    clap_mangen::Man::new(page).render(&mut roff)?;
    output.raw(&roff)?;
    Ok(ExitCode::SUCCESS)
}
