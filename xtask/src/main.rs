//! Repository checks: `cargo xtask <command>`.
//!
//! A check prints one line per problem, each naming the file or crate and the
//! rule, and fails if there was any. What the checks know lives in the modules;
//! this file only picks one.

mod docs;
mod files;
mod metadata;
mod sizes;
mod walls;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

const USAGE: &str = "\
usage: cargo xtask <command>

  walls        compare the dependencies between crates with the table in xtask/src/walls.rs
  check-docs   check that every relative link in a Markdown file leads somewhere, and that no doc
               comment has an example that nothing compiles
  sizes [n]    show the n largest source files and functions (default 15)
";

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a terminal is the only reader")]
fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies one directory below the workspace root");

    let (name, problems) = match arguments.as_slice() {
        ["walls"] => ("walls", walls::check(root)?),
        ["check-docs"] => ("check-docs", docs::check(root)?),
        ["sizes"] => {
            print!("{}", sizes::report(root, sizes::SHOWN_DEFAULT)?);
            return Ok(ExitCode::SUCCESS);
        }
        ["sizes", shown] => {
            print!("{}", sizes::report(root, shown.parse()?)?);
            return Ok(ExitCode::SUCCESS);
        }
        _ => {
            eprint!("{USAGE}");
            return Ok(ExitCode::from(2));
        }
    };

    for problem in &problems {
        eprintln!("{name}: {problem}");
    }
    if !problems.is_empty() {
        eprintln!("{name}: {} problem(s)", problems.len());
        return Ok(ExitCode::FAILURE);
    }
    println!("{name}: ok");
    Ok(ExitCode::SUCCESS)
}
