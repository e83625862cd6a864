// A client that uses cassandra-driver for Node. test_clients.py describes what clients do.
const assert = require('node:assert');
const fs = require('node:fs');
const { Client, types } = require('cassandra-driver');

const { BigDecimal, Duration, InetAddress, Integer, LocalDate, LocalTime, Long } = types;

const written = {
  pk: 1,
  c_ascii: 'abc',
  c_bigint: Long.fromString('9007199254740993'),
  c_blob: Buffer.from([0, 0xff, 0x10]),
  c_boolean: true,
  c_date: LocalDate.fromString('2026-11-22'),
  c_decimal: BigDecimal.fromString('12345678901234567890.123'),
  c_double: 0.1,
  c_duration: new Duration(1, 2, 3),
  c_float: 0.5,
  c_inet: InetAddress.fromString('192.0.2.1'),
  c_int: -7,
  c_smallint: -300,
  c_text: 'grün',
  c_time: LocalTime.fromString('12:00:00.000000005'),
  c_timestamp: new Date('2026-11-22T12:34:56.789Z'),
  c_timeuuid: types.TimeUuid.fromString('8f1a3c00-c7a2-11f1-9b0e-0242ac120002'),
  c_tinyint: -5,
  c_uuid: types.Uuid.fromString('123e4567-e89b-42d3-a456-426614174000'),
  c_varchar: 'x',
  c_varint: Integer.fromString('123456789012345678901234567890'),
  c_list: [1, 2, 1],
  c_set: ['a', 'b'],
  c_map: { a: 1, b: 2 },
  c_udt: { street: 'Main', number: 7 },
  c_frozen: [3, 1],
  c_frozen_udt: { street: 'Main', number: 7 },
  c_tuple: new types.Tuple(1, 'one'),
};

async function everyType(client) {
  const names = Object.keys(written);
  const insert = `INSERT INTO every (${names}) VALUES (${names.map(() => '?')})`;
  await client.execute(insert, Object.values(written), { prepare: true });
  for (const table of ['every', 'every_scylla_cdc_log']) {
    const row = (await client.execute(`SELECT * FROM ${table}`)).first();
    for (const name of names) {
      assert.deepEqual(read(row[name], name), written[name], `${table}.${name}`);
    }
  }
}

// Return a column's value; for a list in a log, which is a map, the elements in order.
function read(value, name) {
  return name !== 'c_list' || Array.isArray(value) ? value : Object.values(value);
}

async function counter(client) {
  const add = 'UPDATE counted SET n = n + ? WHERE pk = 1';
  await client.execute(add, [3], { prepare: true });
  await client.execute(add, [4], { prepare: true });
  assert.equal((await client.execute('SELECT n FROM counted')).first().n, 7);
}

async function pages(client) {
  const insert = 'INSERT INTO many (pk, ck, v) VALUES (?, ?, ?)';
  for (let i = 0; i < 100; i++) {
    await client.execute(insert, [i % 7, i, String(i)], { prepare: true });
  }
  const select = 'SELECT * FROM many_scylla_cdc_log';
  let count = 0;
  for await (const _ of client.stream(select, [], { fetchSize: 7, autoPage: true })) {
    count++;
  }
  assert.equal(count, 100);
}

async function transaction(client) {
  const insert = 'INSERT INTO many (pk, ck, v) VALUES (?, ?, ?) IF NOT EXISTS';
  for (const isNew of [true, false]) {
    const answer = await client.execute(insert, [1, 1000, 'new'], { prepare: true });
    assert.equal(answer.wasApplied(), isNew);
  }
}

async function main([host, port, localDataCenter, keyspace, joins]) {
  const client = new Client({
    contactPoints: [`${host}:${port}`],
    localDataCenter,
    socketOptions: { connectTimeout: 30000, readTimeout: 30000 },
  });
  client.on('hostAdd', (node) => console.log('added', node.address.split(':')[0]));
  await client.connect();
  for (const statement of fs.readFileSync(0, 'utf8').trim().split('\n')) {
    await client.execute(statement);
  }
  await client.execute(`USE ${keyspace}`);
  for (const step of [everyType, counter, pages, transaction]) {
    await step(client);
  }
  console.log('done');
  if (joins) {
    await new Promise((resolve) => setTimeout(resolve, 60000));
  }
  await client.shutdown();
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
