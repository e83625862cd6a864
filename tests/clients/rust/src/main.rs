//! A client that uses ScyllaDB's Rust driver. test_clients.py describes what clients do.

use std::collections::HashSet;
use std::io::stdin;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::TryStreamExt;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::Statement;
use scylla::value::{
    Counter, CqlDate, CqlDecimal, CqlDuration, CqlTime, CqlTimestamp, CqlValue, CqlVarint,
    Row,
};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let keyspace = &arguments[3];
    let session = SessionBuilder::new()
        .known_node(format!("{}:{}", arguments[0], arguments[1]))
        .connection_timeout(Duration::from_secs(30))
        // Long enough that only events make the driver look for nodes.
        .cluster_metadata_refresh_interval(Duration::from_secs(3600))
        .build()
        .await?;
    for statement in stdin().lines() {
        session.query_unpaged(statement?, ()).await?;
    }
    session.use_keyspace(keyspace, false).await?;
    every_type(&session, keyspace).await?;
    counter(&session).await?;
    pages(&session).await?;
    transaction(&session).await?;
    println!("done");
    if arguments.len() > 4 {
        follow(&session).await;
    }
    Ok(())
}

/// Returns each column with its value.
fn values(keyspace: &str) -> anyhow::Result<Vec<(&'static str, CqlValue)>> {
    let ints = |of: &[i32]| CqlValue::List(of.iter().map(|&i| CqlValue::Int(i)).collect());
    let text = |of: &str| CqlValue::Text(of.to_owned());
    let address = CqlValue::UserDefinedType {
        keyspace: keyspace.to_owned(),
        name: "address".to_owned(),
        fields: vec![
            ("street".to_owned(), Some(text("Main"))),
            ("number".to_owned(), Some(CqlValue::Int(7))),
        ],
    };
    // 12345678901234567890123, and 123456789012345678901234567890
    let digits = 12345678901234567890123_i128.to_be_bytes();
    let integer = 123456789012345678901234567890_i128.to_be_bytes();
    Ok(vec![
        ("pk", CqlValue::Int(1)),
        ("c_ascii", CqlValue::Ascii("abc".to_owned())),
        ("c_bigint", CqlValue::BigInt(9007199254740993)),
        ("c_blob", CqlValue::Blob(vec![0, 0xff, 0x10])),
        ("c_boolean", CqlValue::Boolean(true)),
        ("c_date", CqlValue::Date(CqlDate((1 << 31) + 20779))), // 2026-11-22
        ("c_decimal", CqlValue::Decimal(CqlDecimal::from_signed_be_bytes_slice_and_exponent(&digits, 3))),
        ("c_double", CqlValue::Double(0.1)),
        ("c_duration", CqlValue::Duration(CqlDuration { months: 1, days: 2, nanoseconds: 3 })),
        ("c_float", CqlValue::Float(0.5)),
        ("c_inet", CqlValue::Inet("192.0.2.1".parse()?)),
        ("c_int", CqlValue::Int(-7)),
        ("c_smallint", CqlValue::SmallInt(-300)),
        ("c_text", text("grün")),
        ("c_time", CqlValue::Time(CqlTime(12 * 3_600_000_000_000 + 5))),
        ("c_timestamp", CqlValue::Timestamp(CqlTimestamp(1_795_350_896_789))), // 12:34:56.789
        ("c_timeuuid", CqlValue::Timeuuid("8f1a3c00-c7a2-11f1-9b0e-0242ac120002".parse()?)),
        ("c_tinyint", CqlValue::TinyInt(-5)),
        ("c_uuid", CqlValue::Uuid("123e4567-e89b-42d3-a456-426614174000".parse()?)),
        ("c_varchar", text("x")),
        ("c_varint", CqlValue::Varint(CqlVarint::from_signed_bytes_be_slice(&integer))),
        ("c_list", ints(&[1, 2, 1])),
        ("c_set", CqlValue::Set(vec![text("a"), text("b")])),
        ("c_map", CqlValue::Map(vec![(text("a"), CqlValue::Int(1)), (text("b"), CqlValue::Int(2))])),
        ("c_udt", address.clone()),
        ("c_frozen", ints(&[3, 1])),
        ("c_frozen_udt", address),
        ("c_tuple", CqlValue::Tuple(vec![Some(CqlValue::Int(1)), Some(text("one"))])),
    ])
}

async fn every_type(session: &Session, keyspace: &str) -> anyhow::Result<()> {
    let (names, written): (Vec<_>, Vec<_>) = values(keyspace)?.into_iter().unzip();
    let marks = vec!["?"; names.len()].join(", ");
    let insert = format!("INSERT INTO every ({}) VALUES ({marks})", names.join(", "));
    let insert = session.prepare(insert).await?;
    session.execute_unpaged(&insert, &written).await?;
    for table in ["every", "every_scylla_cdc_log"] {
        let select = format!("SELECT {} FROM {table}", names.join(", "));
        let rows = session.query_unpaged(select, ()).await?.into_rows_result()?;
        let row = rows.single_row::<Row>()?;
        for ((name, value), found) in names.iter().zip(&written).zip(row.columns) {
            let found = found.map(elements);
            ensure!(found.as_ref() == Some(value), "{table}.{name}: {found:?}, expected {value:?}");
        }
    }
    Ok(())
}

/// Returns the elements of a list in a log, which is a map, in order; other values unchanged.
fn elements(value: CqlValue) -> CqlValue {
    match value {
        CqlValue::Map(cells) if matches!(cells.first(), Some((CqlValue::Timeuuid(_), _))) => {
            CqlValue::List(cells.into_iter().map(|(_, element)| element).collect())
        }
        other => other,
    }
}

async fn counter(session: &Session) -> anyhow::Result<()> {
    let add = session.prepare("UPDATE counted SET n = n + ? WHERE pk = 1").await?;
    session.execute_unpaged(&add, (Counter(3),)).await?;
    session.execute_unpaged(&add, (Counter(4),)).await?;
    let rows = session.query_unpaged("SELECT n FROM counted", ()).await?.into_rows_result()?;
    let (n,) = rows.single_row::<(Counter,)>()?;
    ensure!(n.0 == 7, "counter: {}, expected 7", n.0);
    Ok(())
}

async fn pages(session: &Session) -> anyhow::Result<()> {
    let insert = session.prepare("INSERT INTO many (pk, ck, v) VALUES (?, ?, ?)").await?;
    for i in 0..100_i32 {
        session.execute_unpaged(&insert, (i % 7, i, i.to_string())).await?;
    }
    let select = Statement::new("SELECT ck FROM many_scylla_cdc_log").with_page_size(7);
    let rows = session.query_iter(select, ()).await?.rows_stream::<(i32,)>()?;
    let keys: HashSet<i32> = rows.map_ok(|(ck,)| ck).try_collect().await?;
    ensure!(keys.len() == 100, "rows of the log: {}, expected 100", keys.len());
    Ok(())
}

async fn transaction(session: &Session) -> anyhow::Result<()> {
    let insert = "INSERT INTO many (pk, ck, v) VALUES (?, ?, ?) IF NOT EXISTS";
    let insert = session.prepare(insert).await?;
    for is_new in [true, false] {
        let answer = session.execute_unpaged(&insert, (1, 1000, "new")).await?;
        let row = answer.into_rows_result()?.single_row::<Row>()?;
        let applied = row.columns[0].as_ref().and_then(CqlValue::as_boolean);
        ensure!(applied.context("no column [applied]")? == is_new, "applied: {applied:?}");
    }
    Ok(())
}

async fn follow(session: &Session) {
    let mut known = HashSet::<IpAddr>::new();
    loop {
        for node in session.get_cluster_state().get_nodes_info() {
            if known.insert(node.address.ip()) {
                println!("added {}", node.address.ip());
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
