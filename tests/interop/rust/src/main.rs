//! Reads a table's CDC log with ScyllaDB's Rust library and prints one line per row.
//!
//! Usage: interop HOST:PORT KEYSPACE TABLE START_MS END_MS
//! Prints `stream_id time batch_seq_no operation end_of_batch`, in the order in which the library delivers rows.

use std::env;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use scylla::client::session_builder::SessionBuilder;
use scylla_cdc::consumer::{CDCRow, Consumer, ConsumerFactory};
use scylla_cdc::log_reader::CDCLogReaderBuilder;

struct Printer;

#[async_trait]
impl Consumer for Printer {
    async fn consume_cdc(&mut self, row: CDCRow<'_>) -> anyhow::Result<()> {
        println!(
            "{} {} {} {} {}",
            row.stream_id, row.time, row.batch_seq_no, row.operation, row.end_of_batch
        );
        Ok(())
    }
}

struct PrinterFactory;

#[async_trait]
impl ConsumerFactory for PrinterFactory {
    async fn new_consumer(&self) -> Box<dyn Consumer> {
        Box::new(Printer)
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, keyspace, table, start, end] = arguments.as_slice() else {
        anyhow::bail!("usage: interop HOST:PORT KEYSPACE TABLE START_MS END_MS");
    };
    let session = SessionBuilder::new().known_node(address).build().await?;
    let (_reader, done) = CDCLogReaderBuilder::new()
        .session(Arc::new(session))
        .keyspace(keyspace)
        .table_name(table)
        .start_timestamp(since_epoch(start)?)
        .end_timestamp(since_epoch(end)?)
        .window_size(Duration::from_secs(3600))
        .safety_interval(Duration::from_millis(1))
        .sleep_interval(Duration::from_millis(100))
        .consumer_factory(Arc::new(PrinterFactory))
        .build()
        .await?;
    done.await
}

fn since_epoch(milliseconds: &str) -> anyhow::Result<Duration> {
    let milliseconds = milliseconds.parse().context("expected milliseconds since 1970")?;
    Ok(Duration::from_millis(milliseconds))
}
