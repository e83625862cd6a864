//! Reads a table's CDC log with ScyllaDB's Rust library, as fast as the library delivers rows.
//!
//! Usage: scylla-cdc-peer HOST:PORT KEYSPACE TABLE START_MS END_MS
//! Prints `rows seconds`: the number of rows, and the time from the start to the last row.

use std::env;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use async_trait::async_trait;
use scylla::client::session_builder::SessionBuilder;
use scylla_cdc::consumer::{CDCRow, Consumer, ConsumerFactory};
use scylla_cdc::log_reader::CDCLogReaderBuilder;

struct Tally {
    start: Instant,
    rows: AtomicU64,
    last_micros: AtomicU64,
}

struct Counter {
    tally: Arc<Tally>,
    rows: u64,
}

#[async_trait]
impl Consumer for Counter {
    async fn consume_cdc(&mut self, _row: CDCRow<'_>) -> anyhow::Result<()> {
        self.rows += 1;
        if self.rows % 1000 == 0 {
            self.tell();
        }
        Ok(())
    }
}

impl Counter {
    fn tell(&mut self) {
        let now = self.tally.start.elapsed().as_micros() as u64;
        self.tally.rows.fetch_add(self.rows, Ordering::Relaxed);
        self.tally.last_micros.fetch_max(now, Ordering::Relaxed);
        self.rows = 0;
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        if self.rows > 0 {
            self.tell();
        }
    }
}

struct CounterFactory(Arc<Tally>);

#[async_trait]
impl ConsumerFactory for CounterFactory {
    async fn new_consumer(&self) -> Box<dyn Consumer> {
        Box::new(Counter { tally: self.0.clone(), rows: 0 })
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, keyspace, table, start, end] = arguments.as_slice() else {
        anyhow::bail!("usage: scylla-cdc-peer HOST:PORT KEYSPACE TABLE START_MS END_MS");
    };
    let session = SessionBuilder::new().known_node(address).build().await?;
    let tally = Arc::new(Tally {
        start: Instant::now(),
        rows: AtomicU64::new(0),
        last_micros: AtomicU64::new(0),
    });
    let (_reader, done) = CDCLogReaderBuilder::new()
        .session(Arc::new(session))
        .keyspace(keyspace)
        .table_name(table)
        .start_timestamp(since_epoch(start)?)
        .end_timestamp(since_epoch(end)?)
        .window_size(Duration::from_secs(86_400))
        .safety_interval(Duration::from_millis(1))
        .sleep_interval(Duration::from_millis(1))
        .consumer_factory(Arc::new(CounterFactory(tally.clone())))
        .build()
        .await?;
    done.await?;
    let seconds = tally.last_micros.load(Ordering::Relaxed) as f64 / 1e6;
    println!("{} {}", tally.rows.load(Ordering::Relaxed), seconds);
    Ok(())
}

fn since_epoch(milliseconds: &str) -> anyhow::Result<Duration> {
    let milliseconds = milliseconds.parse().context("expected milliseconds since 1970")?;
    Ok(Duration::from_millis(milliseconds))
}
