//! `sess`, the command: it reads the configuration once, wires the parts
//! together, and turns outcomes into text and exit codes. No rule about
//! sessions or plans lives here.

mod cli;
mod commands;
mod config;
mod output;
mod panics;
mod private;

use std::{error::Error as _, ffi::OsString, process::ExitCode};

use clap::{
    CommandFactory as _, Parser as _,
    error::{ContextKind, ErrorKind},
};

use crate::{
    cli::{Cli, Command},
    config::{Choice, Config},
    output::{Output, Usage},
};

/// The exit code for a call that is wrong.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let is_service = matches!(cli.command, Some(Command::Serve(_) | Command::Mcp(_)));
    start_log(cli.verbose, is_service);
    panics::mask();
    let output = Output::new(cli.json);
    if let Some(Command::Confined(args)) = &cli.command {
        return commands::confined::run(&output, args).unwrap_or_else(|error| output.fail(&error));
    }
    // One thread runs everything: reads take microseconds, and writes wait on the store's own thread.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return output.fail(&anyhow::anyhow!("cannot start: {error}")),
    };
    let is_hook = matches!(cli.command, Some(Command::Hook { .. }));
    let outcome = runtime.block_on(run(cli, &output));
    // A write that a client never reads must not keep the process.
    runtime.shutdown_background();
    match outcome {
        Ok(code) => code,
        // Whatever is wrong here is no reason for a host not to start.
        Err(error) if is_hook => {
            tracing::info!("{error:#}");
            ExitCode::SUCCESS
        }
        Err(error) => output.fail(&error),
    }
}

/// Says what is wrong with how the command was called; help and version are answers, not mistakes.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return if error.print().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let args: Vec<OsString> = std::env::args_os().skip(1).take_while(|arg| arg != "--").collect();
    // It could not be parsed, and still says how it wants its answers.
    let output = Output::new(args.iter().any(|arg| arg == "--json"));
    // `help` takes no options, and is asked about itself all the same: it answers with what it would say.
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some((last, before)) = args.split_last()
        && (last == "--help" || last == "-h")
        && before.iter().any(|arg| arg == "help")
        && let Err(answer) = Cli::try_parse_from([OsString::from("sess")].iter().chain(before))
    {
        return refuse(&answer);
    }
    let command = command_of(&args);
    if let Some(slug) = error.source().and_then(|source| source.downcast_ref::<sess_work::InvalidSlug>()) {
        let told = sess_work::Error::from(slug.clone());
        // A name that is yet to be given is in no list: it is made of the title.
        let is_new = error.get(ContextKind::InvalidArg).is_some_and(|arg| arg.to_string().contains("--slug"));
        let told =
            if is_new && command == "sess work new" { told.next("sess work new \"<title>\"") } else { told };
        return output.fail(&told.into());
    }
    let next = format!("{command} --help");
    let text = error.render().to_string();
    let told = text.lines().take_while(|line| !line.starts_with("Usage: ") && !line.starts_with("For more "));
    let message = told.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    let message = message.trim_start_matches("error: ");
    // What is said about work sessions is one sentence, which ends with the command to run next.
    if command.starts_with("sess work") {
        return output.fail(&sess_work::Error::usage(message).next(next).into());
    }
    if error.print().is_err() {
        return ExitCode::FAILURE;
    }
    output.fail_data(USAGE, message, Some(&next), None);
    ExitCode::from(USAGE)
}

/// Returns the command that was meant, as far as it can be told from its words.
fn command_of(args: &[OsString]) -> String {
    let (mut command, mut names) = (Cli::command(), vec!["sess".to_owned()]);
    for arg in args {
        if let Some(inner) = command.find_subcommand(arg).cloned() {
            names.push(inner.get_name().to_owned());
            command = inner;
        }
    }
    names.join(" ")
}

async fn run(cli: Cli, output: &Output) -> anyhow::Result<ExitCode> {
    match cli.command {
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "sess", &mut script);
            output.raw(&script)?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(Command::Man { command }) => return commands::man::run(output, command.as_deref()),
        Some(Command::Config(cli::Config::Schema)) => {
            commands::config::schema(output)?;
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    // A file that is named to be checked is the configuration; then it counts as the person's own word.
    let named = match &cli.command {
        Some(Command::Config(cli::Config::Check { file: Some(file) })) => Some(file.as_path()),
        Some(Command::Run(args)) => commands::run::named_file(args).or(cli.config.as_deref()),
        _ => cli.config.as_deref(),
    };
    let usage = |error: anyhow::Error| Usage(format!("{error:#}"));
    let (config, problem) = Config::load(Choice::Usual(named)).map_err(usage)?;
    let helps = matches!(
        cli.command,
        Some(Command::Doctor(_) | Command::Config(cli::Config::Check { .. } | cli::Config::Trust { .. }))
    );
    match problem {
        // What is said about work sessions ends with the command to run next.
        Some(problem) if matches!(cli.command, Some(Command::Work(_))) => {
            let file =
                named.map(|file| format!(" {}", sess_work::quoted(file.display()))).unwrap_or_default();
            let next = format!("sess config check{file}");
            return Err(sess_work::Error::usage(format!("{problem:#}")).next(next).into());
        }
        Some(problem) if !helps => return Err(usage(problem).into()),
        _ => {}
    }
    if !matches!(cli.command, Some(Command::Config(_) | Command::Doctor(_) | Command::Hook { .. })) {
        for notice in &config.notices {
            output.notice(notice);
        }
    }
    let mut context = commands::Context::new(config, problem.map(usage), cli.session, cli.no_redact);
    // The others find the session themselves, or may begin one under that name.
    let acts_in_one = matches!(
        cli.command,
        Some(Command::Runs(_) | Command::Tool(_) | Command::Whoami | Command::Send(_) | Command::Spawn(_))
    );
    if acts_in_one {
        context.complete_session().await?;
    }
    // The largest of the commands makes it large.
    let outcome = Box::pin(commands::run(&context, output, cli.command)).await;
    context.app.finish().await;
    outcome
}

fn start_log(verbose: u8, is_service: bool) {
    use tracing_subscriber::{EnvFilter, filter::LevelFilter};

    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    let filter = EnvFilter::builder().with_default_directive(level.into()).with_env_var("SESS_LOG");
    let mut filter = filter.from_env_lossy();
    if verbose < 2 {
        // What is wrong with a request is said in its answer, not a second time to whoever reads the log.
        filter = filter.add_directive("rmcp=off".parse().expect("a directive"));
    }
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| output::Log)
        .with_ansi(console::colors_enabled_stderr())
        .with_target(false);
    // Who asked for more, or runs what nobody watches, wants to know when it was.
    if verbose == 0 && !is_service {
        log.event_format(output::Notices).init();
    } else {
        log.init();
    }
}
