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
 * Reads a table's CDC log with ScyllaDB's own Java library, as fast as it hands the rows over.
 *
 * <p>Usage: Peer HOST:PORT KEYSPACE TABLE START_MS END_MS. Prints {@code rows seconds}: how many
 * there were, and from the start of reading to the last of them. The JVM's start and connecting are
 * not in these seconds, compiling while it runs is; all three are in the CPU time of its process.
 *
 * <p>The library takes each row in a few steps on two thread pools in turn. One of them is the
 * JVM's common pool, and with fewer than three processors there is none: then each row costs a new
 * thread. So give {@code -Djava.util.concurrent.ForkJoinPool.common.parallelism=2}; and run it on
 * one processor, as threads that hand rows to each other across two can take four times as long.
 *
 * <p>The library follows a log on and on: it reads a window once the clock is past it, and cannot
 * be told where to begin or end. So its clock stands a day after START. That is how long the log
 * keeps its rows, which makes START, or at most one window before it, the oldest time it reads; and
 * to this clock every window is over, so it waits for none. A task that asks for a window from END
 * on has read all before.
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
                .withConfidenceWindowSizeMs(1) // the least it takes
                .withClock(Clock.fixed(Instant.ofEpochMilli(start).plus(KEPT), ZoneOffset.UTC))
                .withWorkersCount(1) // of one stream a second worker only makes a slower read
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

    /** Knows when the tasks of all streams have read up to the end. */
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
                    return new CompletableFuture<>(); // so that the task rests
                }
            };
        }

        /** How many streams there are; the server has but one generation of them. */
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
