// A client that uses gocql (go.mod) or ScyllaDB's fork of it (scylla.mod), with a token-aware
// policy. test_clients.py describes what clients do.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"log"
	"math/big"
	"net"
	"os"
	"sort"
	"strconv"
	"time"

	"github.com/gocql/gocql"
	"gopkg.in/inf.v0"
)

type column struct {
	name  string
	value any
}

type address struct {
	Street string `cql:"street"`
	Number int    `cql:"number"`
}

// watched reports the nodes that the driver adds to a policy.
type watched struct {
	gocql.HostSelectionPolicy
	added chan string
}

func (policy watched) AddHost(host *gocql.HostInfo) {
	policy.HostSelectionPolicy.AddHost(host)
	policy.added <- host.ConnectAddress().String()
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(arguments []string) error {
	host, keyspace, joins := arguments[0], arguments[3], len(arguments) > 4
	port, err := strconv.Atoi(arguments[1])
	if err != nil {
		return err
	}
	session, _, err := connect(host, port, "")
	if err != nil {
		return err
	}
	defer session.Close()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := session.Query(lines.Text()).Exec(); err != nil {
			return fmt.Errorf("%s: %w", lines.Text(), err)
		}
	}
	// Set the keyspace, because otherwise the policy does not request its replicas.
	session, added, err := connect(host, port, keyspace)
	if err != nil {
		return err
	}
	defer session.Close()
	for _, step := range []func(*gocql.Session) error{everyType, counter, pages, transaction} {
		if err := step(session); err != nil {
			return err
		}
	}
	fmt.Println("done")
	if joins {
		return follow(added)
	}
	return nil
}

func connect(host string, port int, keyspace string) (*gocql.Session, chan string, error) {
	cluster := gocql.NewCluster(host)
	cluster.Port, cluster.ProtoVersion, cluster.Keyspace = port, 4, keyspace
	cluster.Timeout, cluster.ConnectTimeout = 30*time.Second, 30*time.Second
	added := make(chan string, 100)
	policy := gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy())
	cluster.PoolConfig.HostSelectionPolicy = watched{policy, added}
	session, err := cluster.CreateSession()
	return session, added, err
}

func everyType(session *gocql.Session) error {
	moment := time.Date(2026, 11, 22, 12, 34, 56, 789e6, time.UTC)
	integer, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	decimal, _ := new(inf.Dec).SetString("12345678901234567890.123")
	timeID, _ := gocql.ParseUUID("8f1a3c00-c7a2-11f1-9b0e-0242ac120002")
	id, _ := gocql.ParseUUID("123e4567-e89b-42d3-a456-426614174000")
	// The elements of a tuple are bound and read separately.
	written := []column{
		{"pk", 1},
		{"c_ascii", "abc"},
		{"c_bigint", int64(9007199254740993)},
		{"c_blob", []byte{0, 0xff, 0x10}},
		{"c_boolean", true},
		{"c_date", moment.Truncate(24 * time.Hour)},
		{"c_decimal", decimal},
		{"c_double", 0.1},
		{"c_duration", gocql.Duration{Months: 1, Days: 2, Nanoseconds: 3}},
		{"c_float", float32(0.5)},
		{"c_inet", net.ParseIP("192.0.2.1").To4()},
		{"c_int", -7},
		{"c_smallint", int16(-300)},
		{"c_text", "grün"},
		{"c_time", 12*time.Hour + 5},
		{"c_timestamp", moment},
		{"c_timeuuid", timeID},
		{"c_tinyint", int8(-5)},
		{"c_uuid", id},
		{"c_varchar", "x"},
		{"c_varint", integer},
		{"c_list", []int{1, 2, 1}},
		{"c_set", []string{"a", "b"}},
		{"c_map", map[string]int{"a": 1, "b": 2}},
		{"c_udt", address{"Main", 7}},
		{"c_frozen", []int{3, 1}},
		{"c_frozen_udt", address{"Main", 7}},
		{"c_tuple", []any{1, "one"}},
	}
	names, marks := "", ""
	values := make([]any, 0, len(written))
	for _, c := range written {
		names += ", " + c.name
		if elements, isTuple := c.value.([]any); isTuple {
			marks += ", (?, ?)"
			values = append(values, elements...)
		} else {
			marks += ", ?"
			values = append(values, c.value)
		}
	}
	insert := fmt.Sprintf("INSERT INTO every (%s) VALUES (%s)", names[2:], marks[2:])
	if err := session.Query(insert, values...).Exec(); err != nil {
		return err
	}
	for _, table := range []string{"every", "every_scylla_cdc_log"} {
		row := map[string]any{}
		if err := session.Query("SELECT * FROM " + table).MapScan(row); err != nil {
			return err
		}
		for _, c := range written {
			if found := read(row, c.name); found != fmt.Sprint(plain(c.value)) {
				return fmt.Errorf("%s.%s: %v, expected %v", table, c.name, found, plain(c.value))
			}
		}
	}
	return nil
}

// read returns a column's value as text; for a list in a log, the elements in order of their ids.
func read(row map[string]any, name string) string {
	if first, isTuple := row[name+"[0]"]; isTuple {
		return fmt.Sprint([]any{first, row[name+"[1]"]})
	}
	cells, isLogged := row[name].(map[gocql.UUID]int)
	if !isLogged {
		return fmt.Sprint(row[name])
	}
	ids := make([]gocql.UUID, 0, len(cells))
	for id := range cells {
		ids = append(ids, id)
	}
	// The server orders ids by time, then by the remaining bytes.
	sort.Slice(ids, func(i, j int) bool {
		if a, b := ids[i].Timestamp(), ids[j].Timestamp(); a != b {
			return a < b
		}
		return bytes.Compare(ids[i][8:], ids[j][8:]) < 0
	})
	values := make([]int, len(ids))
	for i, id := range ids {
		values[i] = cells[id]
	}
	return fmt.Sprint(values)
}

// plain converts a value to the form in which the driver reads it.
func plain(value any) any {
	if udt, is := value.(address); is {
		return map[string]any{"street": udt.Street, "number": udt.Number}
	}
	return value
}

func counter(session *gocql.Session) error {
	var n int64
	for _, by := range []int64{3, 4} {
		if err := session.Query("UPDATE counted SET n = n + ? WHERE pk = 1", by).Exec(); err != nil {
			return err
		}
	}
	if err := session.Query("SELECT n FROM counted").Scan(&n); err != nil {
		return err
	}
	return equal("counter", n, 7)
}

func pages(session *gocql.Session) error {
	for i := range 100 {
		insert := "INSERT INTO many (pk, ck, v) VALUES (?, ?, ?)"
		if err := session.Query(insert, i%7, i, strconv.Itoa(i)).Exec(); err != nil {
			return err
		}
	}
	rows := session.Query("SELECT * FROM many_scylla_cdc_log").PageSize(7).Iter()
	count := int64(0)
	for rows.MapScan(map[string]any{}) {
		count++
	}
	if err := rows.Close(); err != nil {
		return err
	}
	return equal("rows of the log", count, 100)
}

func transaction(session *gocql.Session) error {
	for _, isNew := range []bool{true, false} {
		insert := "INSERT INTO many (pk, ck, v) VALUES (?, ?, ?) IF NOT EXISTS"
		applied, err := session.Query(insert, 1, 1000, "new").MapScanCAS(map[string]any{})
		if err != nil {
			return err
		}
		if applied != isNew {
			return errors.New("the second of two equal inserts was applied, or the first was not")
		}
	}
	return nil
}

func follow(added chan string) error {
	for {
		select {
		case node := <-added:
			fmt.Println("added", node)
		case <-time.After(60 * time.Second):
			return nil
		}
	}
}

func equal(what string, found, expected int64) error {
	if found != expected {
		return fmt.Errorf("%s: %d, expected %d", what, found, expected)
	}
	return nil
}
