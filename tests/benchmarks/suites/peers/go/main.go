// Reads a table's CDC log with ScyllaDB's Go library, as fast as the library delivers rows.
//
// Usage: scylla-cdc-peer HOST:PORT KEYSPACE TABLE START_MS END_MS
// Prints `rows seconds`: the number of rows, and the time from the start to the last row.
//
// The log must have a single generation, and END_MS must be in the past; otherwise the library
// does not stop reliably.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"
)

func main() {
	// The library produces much garbage. With fewer collections it is a fifth faster.
	debug.SetGCPercent(400)
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(arguments []string) error {
	if len(arguments) != 5 {
		return errors.New("usage: scylla-cdc-peer HOST:PORT KEYSPACE TABLE START_MS END_MS")
	}
	start, err := sinceEpoch(arguments[3])
	if err != nil {
		return err
	}
	end, err := sinceEpoch(arguments[4])
	if err != nil {
		return err
	}
	session, err := connect(arguments[0])
	if err != nil {
		return err
	}
	defer session.Close()
	return read(session, arguments[1]+"."+arguments[2], start, end)
}

func sinceEpoch(milliseconds string) (time.Time, error) {
	number, err := strconv.ParseInt(milliseconds, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("expected milliseconds since 1970: %w", err)
	}
	return time.UnixMilli(number), nil
}

func connect(address string) (*gocql.Session, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	cluster := gocql.NewCluster(host)
	if cluster.Port, err = strconv.Atoi(port); err != nil {
		return nil, err
	}
	cluster.PageSize = 5000
	return cluster.CreateSession()
}

func read(session *gocql.Session, table string, start, end time.Time) error {
	ctx := context.Background()
	counted := &tally{start: time.Now()}
	progress := &span{start: start}
	reader, err := scyllacdc.NewReader(ctx, &scyllacdc.ReaderConfig{
		Session:               session,
		TableNames:            []string{table},
		ChangeConsumerFactory: counted,
		ProgressManager:       progress,
		Advanced: scyllacdc.AdvancedReaderConfig{
			QueryTimeWindowSize:    24 * time.Hour,
			ConfidenceWindowSize:   time.Millisecond,
			PostNonEmptyQueryDelay: time.Millisecond,
			PostEmptyQueryDelay:    time.Millisecond,
		},
	})
	if err != nil {
		return err
	}
	progress.begun = func() { reader.StopAt(end) }
	if err := reader.Run(ctx); err != nil {
		return err
	}
	fmt.Println(counted.rows, counted.seconds)
	return nil
}

// tally is the total of all consumers.
type tally struct {
	start   time.Time
	lock    sync.Mutex
	rows    int
	seconds float64
}

func (t *tally) CreateChangeConsumer(
	context.Context, scyllacdc.CreateChangeConsumerInput,
) (scyllacdc.ChangeConsumer, error) {
	return &counter{tally: t}, nil
}

// counter counts the rows of one stream.
type counter struct {
	tally *tally
	rows  int
}

func (c *counter) Consume(_ context.Context, change scyllacdc.Change) error {
	c.rows += len(change.PreImage) + len(change.Delta) + len(change.PostImage)
	return nil
}

// End is called right after the last row. The clock is read only here, because that takes time.
func (c *counter) End() error {
	if c.rows > 0 {
		c.tally.lock.Lock()
		defer c.tally.lock.Unlock()
		c.tally.rows += c.rows
		c.tally.seconds = time.Since(c.tally.start).Seconds()
	}
	return nil
}

// span sets where to start reading. It never saves progress.
type span struct {
	start time.Time
	begun func()
}

func (s *span) GetApplicationReadStartTime(context.Context) (time.Time, error) {
	return s.start, nil
}

func (s *span) SaveApplicationReadStartTime(context.Context, time.Time) error {
	return nil
}

func (s *span) GetCurrentGeneration(context.Context) (time.Time, error) {
	return time.Time{}, nil
}

// StartGeneration sets where the library stops. If this is set earlier, the library may stop before
// it finds a generation; if it is set after the first window, the library reads another window.
func (s *span) StartGeneration(context.Context, time.Time) error {
	s.begun()
	return nil
}

func (s *span) GetProgress(
	context.Context, time.Time, string, scyllacdc.StreamID,
) (scyllacdc.Progress, error) {
	return scyllacdc.Progress{}, nil
}

func (s *span) SaveProgress(
	context.Context, time.Time, string, scyllacdc.StreamID, scyllacdc.Progress,
) error {
	return nil
}
