//! A network for tests: it stands between clients and a target and is slow, narrow, long or broken, as asked.
//!
//! One thread: what it costs is one core at most, and the order of events is easy to follow.

mod connection;
mod control;
mod faults;
mod frames;
mod link;
mod pipe;
mod random;
mod relay;
mod settings;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::LocalSet;

use crate::relay::Relay;
use crate::settings::Settings;

const USAGE: &str =
    "usage: penstock-relay --route LISTEN=TARGET [--route ...] --control ADDRESS --report FILE [--settings JSON]";

struct Arguments {
    routes: Vec<(String, String)>,
    control: String,
    report: PathBuf,
    settings: Settings,
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = arguments().and_then(|arguments| {
        let runtime = runtime.map_err(|error| error.to_string())?;
        LocalSet::new().block_on(&runtime, run(arguments))
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn arguments() -> Result<Arguments, String> {
    let (mut routes, mut control, mut report) = (Vec::new(), None, None);
    let mut settings = Settings::default();
    let mut words = std::env::args().skip(1);
    while let Some(name) = words.next() {
        let value = words.next().ok_or_else(|| format!("{name} needs a value\n{USAGE}"))?;
        match name.as_str() {
            "--route" => {
                let (listen, target) = value.split_once('=').ok_or_else(|| format!("{value} is no LISTEN=TARGET"))?;
                routes.push((listen.to_owned(), target.to_owned()));
            }
            "--control" => control = Some(value),
            "--report" => report = Some(PathBuf::from(value)),
            "--settings" => {
                let changes = serde_json::from_str(&value).map_err(|error| format!("--settings: {error}"))?;
                settings = settings.changed(changes)?;
            }
            _ => return Err(format!("unknown argument {name}\n{USAGE}")),
        }
    }
    match (routes.is_empty(), control, report) {
        (false, Some(control), Some(report)) => Ok(Arguments { routes, control, report, settings }),
        _ => Err(USAGE.to_owned()),
    }
}

async fn run(arguments: Arguments) -> Result<(), String> {
    let relay = Rc::new(Relay::new(arguments.settings));
    let mut endpoints = Vec::new();
    for (listen, target) in arguments.routes {
        let listener = bind(&listen).await?;
        endpoints.push(address(&listener)?);
        tokio::task::spawn_local(accept(Rc::clone(&relay), listener, target));
    }
    let control = bind(&arguments.control).await?;
    let report = json!({ "routes": endpoints, "control": address(&control)? });
    write_report(&arguments.report, &report.to_string())?;
    control::listen(relay, control).await;
    Ok(())
}

async fn bind(listen: &str) -> Result<TcpListener, String> {
    TcpListener::bind(listen).await.map_err(|error| format!("{listen} cannot be listened on: {error}"))
}

fn address(listener: &TcpListener) -> Result<String, String> {
    listener.local_addr().map(|address| address.to_string()).map_err(|error| error.to_string())
}

/// Renamed into place, so that whoever waits for the file finds it whole.
fn write_report(path: &Path, text: &str) -> Result<(), String> {
    let draft = path.with_extension("draft");
    std::fs::write(&draft, text)
        .and_then(|()| std::fs::rename(&draft, path))
        .map_err(|error| format!("{} cannot be written: {error}", path.display()))
}

async fn accept(relay: Rc<Relay>, listener: TcpListener, target: String) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                tokio::task::spawn_local(connection::serve(Rc::clone(&relay), client, target.clone()));
            }
            Err(error) => {
                eprintln!("accept: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}
