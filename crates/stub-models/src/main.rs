//! `stub-models --script FILE [--port N]`: the stub as a program of its own.

use std::io::Write;

use anyhow::{Context, Result, bail};
use stub_models::{Script, Stub};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut script = None;
    let mut port = 0;
    while let Some(arg) = args.next() {
        let value = args.next().with_context(|| format!("{arg} needs a value"))?;
        match arg.as_str() {
            "--script" => script = Some(value),
            "--port" => port = value.parse().context("--port needs a number")?,
            _ => bail!("unknown argument {arg}; usage: stub-models --script FILE [--port N]"),
        }
    }
    let path = script.context("usage: stub-models --script FILE [--port N]")?;
    let text = std::fs::read_to_string(&path).with_context(|| format!("the script {path} cannot be read"))?;
    let script = Script::parse(&text).with_context(|| format!("the script {path} is not valid"))?;

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stub = Stub::start_at(script, port).await?;
        let mut out = std::io::stdout();
        writeln!(out, "listening on {}", stub.url)?;
        out.flush()?;
        stub.serve().await;
        Ok(())
    })
}
