//! The least that any relay must do: read and write, a thread a direction. The relay's cost is measured against it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::{env, fs, io, thread};

const CHUNK_BYTES: usize = 128 * 1024;

fn main() -> io::Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [listen, target, report] = words.as_slice() else {
        return Err(io::Error::other("usage: bare-copy LISTEN TARGET REPORT"));
    };
    let listener = TcpListener::bind(listen)?;
    let draft = format!("{report}.draft");
    fs::write(&draft, listener.local_addr()?.to_string())?;
    fs::rename(&draft, report)?;
    for client in listener.incoming() {
        let client = client?;
        let server = TcpStream::connect(target)?;
        for (source, sink) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
            source.set_nodelay(true)?;
            thread::spawn(move || copy(source, sink));
        }
    }
    Ok(())
}

fn copy(mut source: TcpStream, mut sink: TcpStream) {
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Ok(length) = source.read(&mut buffer) {
        if length == 0 || sink.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = sink.shutdown(Shutdown::Write);
}
