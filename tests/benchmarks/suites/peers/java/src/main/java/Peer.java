import com.scylladb.cdc.cql.MasterCQL;
import com.scylladb.cdc.cql.driver3.Driver3MasterCQL;
import com.scylladb.cdc.cql.driver3.Driver3Session;
import com.scylladb.cdc.cql.driver3.Driver3WorkerCQL;
import com.scylladb.cdc.lib.CDCConsumer;
import com.scylladb.cdc.model.worker.Task;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.LongAdder;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * Reads a table's CDC log with ScyllaDB's Java library, as fast as the library delivers rows.
 *
 * <p>Usage: Peer HOST:PORT KEYSPACE TABLE START_MS END_MS. Prints {@code rows seconds}: the number
 * of rows, and the time from the start to the last row. The time includes just-in-time compilation,
 * but not the start of the JVM or connecting. The CPU time of the process includes all three.
 *
 * <p>The library processes each row in a few steps, on two thread pools in turn. One of them is the
 * JVM's common pool. With fewer than three processors there is no such pool, and each row takes a
 * new thread, so set {@code -Djava.util.concurrent.ForkJoinPool.common.parallelism=2}. Run it on
 * one processor: with two, passing rows between threads can take four times as long.
 *
 * <p>The library follows a log without end: it reads each window when the clock has passed it, and
 * has no settings for a start or an end. Its clock is therefore fixed at a day after START. The log
 * keeps rows for a day, so the oldest time that the library reads is START, or at most one window
 * earlier. By this clock every window is over, so the library never waits. A task that requests a
 * window from END on has read all earlier windows.
 */
public final class Peer {
    private static final Duration KEPT = Duration.ofDays(1);
    private static final CompletableFuture<Void> CONSUMED = CompletableFuture.completedFuture(null);
    private static final Logger LIBRARY = Logger.getLogger("com.scylladb.cdc");

    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 5) {
            System.err.println("usage: Peer HOST:PORT KEYSPACE TABLE START_MS END_MS");
            System.exit(2);
        }
        LIBRARY.setLevel(Level.WARNING);
        String[] address = arguments[0].split(":");
        long start = Long.parseLong(arguments[3]);
        long end = Long.parseLong(arguments[4]);
        LongAdder rows = new LongAdder();
        Progress progress = new Progress(end);
        CDCConsumer.Builder builder = CDCConsumer.builder()
                .addContactPoint(address[0], Integer.parseInt(address[1]))
                .addTable(arguments[1], arguments[2])
                .withQueryOptionsFetchSize(5_000)
                .withQueryTimeWindowSizeMs(end - start)
                .withConfidenceWindowSizeMs(1) // the minimum
                .withClock(Clock.fixed(Instant.ofEpochMilli(start).plus(KEPT), ZoneOffset.UTC))
                .withWorkersCount(1) // for one stream, a second worker is slower
                .withWorkerCQLProvider(progress::watch)
                .withRawChangeConsumer(change -> {
                    rows.increment();
                    return CONSUMED;
                });
        try (CDCConsumer consumer = builder.build()) {
            long began = System.nanoTime();
            consumer.start();
            progress.await();
            double seconds = (System.nanoTime() - began) / 1e9;
            System.out.println(rows.sum() + " " + seconds);
        }
    }

    /** Waits until the tasks of all streams have read up to the end. */
    private static final class Progress {
        private final long end;
        private final Semaphore streamsRead = new Semaphore(0);
        private int streams;

        Progress(long end) {
            this.end = end;
        }

        void await() throws InterruptedException {
            streamsRead.acquire(streams);
        }

        Driver3WorkerCQL watch(Driver3Session session) {
            streams = streamsOf(new Driver3MasterCQL(session));
            return new Driver3WorkerCQL(session) {
                @Override
                public CompletableFuture<Reader> createReader(Task task) {
                    if (task.state.getWindowStartTimestamp().toDate().getTime() < end) {
                        return super.createReader(task);
                    }
                    streamsRead.release(task.streams.size());
                    return new CompletableFuture<>(); // never completes, so the task stops
                }
            };
        }

        /** Returns the number of streams; the server has only one generation. */
        private static int streamsOf(MasterCQL cql) {
            try {
                var generation = cql.fetchFirstGenerationId().get().orElseThrow();
                return cql.fetchGenerationMetadata(generation).get().getStreams().size();
            } catch (InterruptedException | ExecutionException error) {
                throw new IllegalStateException("the streams could not be read", error);
            }
        }
    }
}
