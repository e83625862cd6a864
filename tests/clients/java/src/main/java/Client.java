import com.datastax.oss.driver.api.core.CqlIdentifier;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.data.CqlDuration;
import com.datastax.oss.driver.api.core.data.UdtValue;
import com.datastax.oss.driver.api.core.metadata.Node;
import com.datastax.oss.driver.api.core.metadata.NodeStateListenerBase;
import com.datastax.oss.driver.api.core.type.DataTypes;
import com.datastax.oss.driver.api.core.type.UserDefinedType;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalTime;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;

/**
 * A client that uses Java driver 4 or ScyllaDB's fork of it. test_clients.py describes what clients
 * do.
 */
public class Client {
  public static void main(String[] arguments) throws Exception {
    InetSocketAddress address =
        new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1]));
    boolean joins = arguments.length > 4;
    try (CqlSession session =
        CqlSession.builder()
            .addContactPoint(address)
            .withLocalDatacenter(arguments[2])
            .withConfigLoader(patient())
            .addNodeStateListener(new Announcer())
            .build()) {
      new BufferedReader(new InputStreamReader(System.in)).lines().forEach(session::execute);
      session.execute("USE " + arguments[3]);
      everyType(session, arguments[3]);
      counter(session);
      pages(session);
      transaction(session);
      System.out.println("done");
      if (joins) {
        Thread.sleep(Duration.ofMinutes(1).toMillis());
      }
    }
  }

  private static DriverConfigLoader patient() {
    Duration patience = Duration.ofSeconds(30);
    return DriverConfigLoader.programmaticBuilder()
        .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, patience)
        .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, patience)
        .withDuration(DefaultDriverOption.CONTROL_CONNECTION_TIMEOUT, patience)
        .build();
  }

  private static class Announcer extends NodeStateListenerBase {
    @Override
    public void onAdd(Node node) {
      node.getBroadcastRpcAddress()
          .ifPresent(rpc -> System.out.println("added " + rpc.getAddress().getHostAddress()));
    }
  }

  private static void everyType(CqlSession session, String keyspace) throws Exception {
    UserDefinedType type =
        session.refreshSchema().getKeyspace(keyspace).orElseThrow()
            .getUserDefinedType("address").orElseThrow();
    UdtValue home = type.newValue("Main", 7);
    Map<String, Object> written = new LinkedHashMap<>();
    written.put("pk", 1);
    written.put("c_ascii", "abc");
    written.put("c_bigint", 9007199254740993L);
    written.put("c_blob", ByteBuffer.wrap(new byte[] {0, (byte) 0xff, 0x10}));
    written.put("c_boolean", true);
    written.put("c_date", LocalDate.of(2026, 11, 22));
    written.put("c_decimal", new BigDecimal("12345678901234567890.123"));
    written.put("c_double", 0.1);
    written.put("c_duration", CqlDuration.newInstance(1, 2, 3));
    written.put("c_float", 0.5f);
    written.put("c_inet", InetAddress.getByName("192.0.2.1"));
    written.put("c_int", -7);
    written.put("c_smallint", (short) -300);
    written.put("c_text", "grün");
    written.put("c_time", LocalTime.of(12, 0, 0, 5));
    written.put("c_timestamp", Instant.parse("2026-11-22T12:34:56.789Z"));
    written.put("c_timeuuid", UUID.fromString("8f1a3c00-c7a2-11f1-9b0e-0242ac120002"));
    written.put("c_tinyint", (byte) -5);
    written.put("c_uuid", UUID.fromString("123e4567-e89b-42d3-a456-426614174000"));
    written.put("c_varchar", "x");
    written.put("c_varint", new BigInteger("123456789012345678901234567890"));
    written.put("c_list", List.of(1, 2, 1));
    written.put("c_set", Set.of("a", "b"));
    written.put("c_map", Map.of("a", 1, "b", 2));
    written.put("c_udt", home);
    written.put("c_frozen", List.of(3, 1));
    written.put("c_frozen_udt", home);
    written.put("c_tuple", DataTypes.tupleOf(DataTypes.INT, DataTypes.TEXT).newValue(1, "one"));
    String names = String.join(", ", written.keySet());
    String marks = String.join(", ", Collections.nCopies(written.size(), "?"));
    PreparedStatement insert =
        session.prepare("INSERT INTO every (" + names + ") VALUES (" + marks + ")");
    session.execute(insert.bind(written.values().toArray()));
    for (String table : List.of("every", "every_scylla_cdc_log")) {
      Row row = session.execute("SELECT * FROM " + table).one();
      written.forEach((name, value) -> expect(table + "." + name, read(row, name), value));
    }
  }

  /** A column's value; for a list in a log, which is a map, the elements in order. */
  private static Object read(Row row, String name) {
    Object value = row.getObject(CqlIdentifier.fromInternal(name));
    if (!name.equals("c_list") || value instanceof List) {
      return value;
    }
    return List.copyOf(((Map<?, ?>) value).values());
  }

  private static void counter(CqlSession session) {
    PreparedStatement add = session.prepare("UPDATE counted SET n = n + ? WHERE pk = 1");
    session.execute(add.bind(3L));
    session.execute(add.bind(4L));
    expect("counter", session.execute("SELECT n FROM counted").one().getLong("n"), 7L);
  }

  private static void pages(CqlSession session) {
    PreparedStatement insert = session.prepare("INSERT INTO many (pk, ck, v) VALUES (?, ?, ?)");
    for (int i = 0; i < 100; i++) {
      session.execute(insert.bind(i % 7, i, Integer.toString(i)));
    }
    SimpleStatement select =
        SimpleStatement.newInstance("SELECT * FROM many_scylla_cdc_log").setPageSize(7);
    expect("rows of the log", session.execute(select).all().size(), 100);
  }

  private static void transaction(CqlSession session) {
    PreparedStatement insert =
        session.prepare("INSERT INTO many (pk, ck, v) VALUES (?, ?, ?) IF NOT EXISTS");
    for (boolean isNew : List.of(true, false)) {
      boolean applied = session.execute(insert.bind(1, 1000, "new")).wasApplied();
      expect("whether an insert was applied", applied, isNew);
    }
  }

  private static void expect(String what, Object found, Object expected) {
    if (!expected.equals(found)) {
      throw new AssertionError(what + ": " + found + ", expected " + expected);
    }
  }
}
