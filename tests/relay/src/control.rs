//! The control socket: `{"set": {...}}`, `"clear"`, `"reset"` or `"stats"` a line, one JSON object back.

use std::rc::Rc;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::relay::Relay;
use crate::settings::Settings;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
enum Request {
    Set(Map<String, Value>),
    Clear,
    Reset,
    Stats,
}

pub async fn listen(relay: Rc<Relay>, listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::task::spawn_local(serve(Rc::clone(&relay), stream));
    }
}

async fn serve(relay: Rc<Relay>, mut stream: TcpStream) {
    let (reading, mut writing) = stream.split();
    let mut lines = BufReader::new(reading).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let answer = answer(&relay, &line).unwrap_or_else(|message| json!({ "error": message }));
        if writing.write_all(format!("{answer}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

fn answer(relay: &Relay, line: &str) -> Result<Value, String> {
    match serde_json::from_str(line).map_err(|error| error.to_string())? {
        Request::Set(changes) => {
            eprintln!("set {}", Value::Object(changes.clone()));
            relay.change(changes)?;
        }
        Request::Clear => relay.replace(Settings::default()),
        Request::Reset => relay.reset_all(),
        Request::Stats => return Ok(json!({ "stats": relay.stats() })),
    }
    Ok(json!({ "ok": true }))
}
