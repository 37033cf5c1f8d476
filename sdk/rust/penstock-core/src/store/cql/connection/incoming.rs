//! Receiving answers: their heads, and each body in memory of its own.

use std::io;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::arena::Pool;
use crate::lanes::Meter;
use crate::process::LULL;
use crate::store::cql::wire::{Damaged, HEADER_BYTES};

/// Heads and small answers are received through this; the rest of a large answer goes to its own memory.
const READ_BYTES: usize = 16 << 10;
/// After an answer of this size little more than a head is read at once: the next one will be large too.
const LARGE_BYTES: usize = 2 * READ_BYTES;
const HEAD_READ_BYTES: usize = 256;

pub(super) fn invalid(error: Damaged) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// What the end of a connection is in the middle of an answer.
pub(super) fn cut_off(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => invalid(Damaged("it was cut off")),
        _ => error,
    }
}

/// The receiving side of a socket, with what was read beyond the last answer.
pub(super) struct Incoming<R> {
    source: R,
    ahead: BytesMut,
    pool: Pool,
    last_body_bytes: usize,
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    pub fn new(source: R, pool: Pool) -> Self {
        Self {
            source,
            ahead: BytesMut::with_capacity(READ_BYTES),
            pool,
            last_body_bytes: 0,
        }
    }

    pub async fn head(&mut self, meter: &Meter) -> io::Result<[u8; HEADER_BYTES]> {
        // What is read of a large body along with its head has to be copied once more.
        let most = if self.last_body_bytes < LARGE_BYTES {
            READ_BYTES
        } else {
            HEAD_READ_BYTES
        };
        while self.ahead.len() < HEADER_BYTES {
            self.ahead.reserve(READ_BYTES);
            let mut source = (&mut self.source).take(most as u64);
            let read = match source.read_buf(&mut self.ahead).await {
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                read => read,
            };
            if let Err(error) = read {
                let is_between = self.ahead.is_empty();
                return Err(if is_between { error } else { cut_off(error) });
            }
            meter.heard(Instant::now());
        }
        let mut head = [0; HEADER_BYTES];
        head.copy_from_slice(&self.ahead.split_to(HEADER_BYTES));
        Ok(head)
    }

    /// Memory for this body alone: what a caller keeps of it keeps nothing else alive.
    pub async fn body(&mut self, length: usize, meter: &Meter) -> io::Result<Bytes> {
        self.last_body_bytes = length;
        if length < LARGE_BYTES {
            let mut body = vec![0; length];
            self.fill(&mut body, length, meter).await?;
            return Ok(Bytes::from(body));
        }
        // With room for the head of the next answer: what comes with the end of this one needs no call of its own.
        let mut block = self.pool.take(length + HEAD_READ_BYTES)?;
        let filled = self.fill(block.as_mut_slice(), length, meter).await?;
        self.ahead
            .extend_from_slice(&block.as_ref()[length..filled]);
        block.truncate(length);
        Ok(block.into_bytes())
    }

    /// Reads at least so many bytes, and as many more as come with them. Returns how many there are.
    async fn fill(
        &mut self,
        target: &mut [u8],
        at_least: usize,
        meter: &Meter,
    ) -> io::Result<usize> {
        let mut filled = at_least.min(self.ahead.len());
        target[..filled].copy_from_slice(&self.ahead.split_to(filled));
        while filled < at_least {
            let read = self.source.read(&mut target[filled..]).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += read;
            LULL.came(read as u64);
            meter.heard(Instant::now());
        }
        Ok(filled)
    }
}
