import com.sun.management.OperatingSystemMXBean;
import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import io.netty.util.TimerTask;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.StringJoiner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Does one work with Netty's HashedWheelTimer and prints the outcome as one line of JSON, like the child processes of
 * the Go program. Arguments are key=value; durations are nanoseconds.
 */
public final class NettyBench {
    private static final int BATCH = 256; // operations between two readings of the clock
    private static final int DELAYS = 1 << 16; // power of two
    private static final TimerTask NOTHING = timeout -> { };

    private final Map<String, String> args;
    private final int n;
    private final HashedWheelTimer timer;
    private final Map<String, Double> metrics = new LinkedHashMap<>();

    private NettyBench(Map<String, String> args) {
        this.args = args;
        n = (int) number("n");
        timer = new HashedWheelTimer(
            Executors.defaultThreadFactory(), number("tick"), TimeUnit.NANOSECONDS, (int) number("slots"), false);
    }

    public static void main(String[] argv) throws Exception {
        Map<String, String> args = new HashMap<>();
        for (String arg : argv) {
            int at = arg.indexOf('=');
            args.put(arg.substring(0, at), arg.substring(at + 1));
        }
        NettyBench bench = new NettyBench(args);
        bench.run(args.get("work"));
        bench.print();
        System.exit(0);
    }

    private long number(String key) {
        return Long.parseLong(args.get(key));
    }

    private void run(String work) throws Exception {
        switch (work) {
            case "replace", "instant", "reschedule", "move" -> operations(work, 1);
            case "replace-2", "instant-2", "reschedule-2", "move-2" -> operations(work.substring(0, work.length() - 2), 2);
            case "expiry" -> expiry();
            case "memory" -> memory();
            case "hold" -> hold();
            default -> throw new IllegalArgumentException("no work " + work);
        }
    }

    private void print() {
        StringJoiner pairs = new StringJoiner(",", "{\"metrics\":{", "}}");
        metrics.forEach((key, value) -> pairs.add(String.format(Locale.ROOT, "\"%s\":%.6f", key, value)));
        System.out.println(pairs);
    }

    private static void exitStuck(String why) {
        System.out.println("{\"failure\":\"" + why + "\"}");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private long[] delays(long low, long high) {
        SplittableRandom random = new SplittableRandom(number("seed"));
        long[] table = new long[DELAYS];
        for (int i = 0; i < table.length; i++) {
            table[i] = random.nextLong(low, high);
        }
        return table;
    }

    /** Starts all timers and waits until the worker has transferred them, at most 100,000 per tick. */
    private Timeout[] fill(long[] delays, int spare) throws InterruptedException {
        Timeout[] timeouts = new Timeout[n + spare];
        for (int i = 0; i < n; i++) {
            timeouts[i] = timer.newTimeout(NOTHING, delays[i % DELAYS], TimeUnit.NANOSECONDS);
        }
        Thread.sleep(n / 100_000 * TimeUnit.NANOSECONDS.toMillis(number("tick")));
        return timeouts;
    }

    private void settle() throws InterruptedException {
        System.gc();
        TimeUnit.NANOSECONDS.sleep(number("settle"));
    }

    private void operations(String work, int producers) throws Exception {
        long[] delays = delays(number("low"), number("high"));
        Timeout[] timeouts = fill(delays, producers);
        Producer[] all = new Producer[producers];
        for (int k = 0; k < producers; k++) {
            all[k] = new Producer(work, timeouts, delays, k, n / producers);
        }
        runFor(all, number("warmup"));
        settle();
        long before = done(all);
        long took = runFor(all, number("measure"));
        metrics.put("ns", (double) took / (done(all) - before));
        metrics.put("operations", (double) (done(all) - before));
    }

    private static long done(Producer[] all) {
        return Arrays.stream(all).mapToLong(p -> p.done).sum();
    }

    private long runFor(Producer[] all, long duration) throws InterruptedException {
        CountDownLatch start = new CountDownLatch(1);
        for (Producer p : all) {
            p.begin(start, duration);
        }
        long began = System.nanoTime();
        start.countDown();
        for (Producer p : all) {
            p.thread.join(TimeUnit.NANOSECONDS.toMillis(duration + number("patience")));
            if (p.thread.isAlive()) {
                exitStuck("stuck: operations had not returned long after they should have");
            }
        }
        return System.nanoTime() - began;
    }

    /** Does operations on the timers that it owns, in a random order chosen in advance. */
    private final class Producer {
        private final String work;
        private final Timeout[] timeouts;
        private final long[] delays;
        private final int[] order;
        private final int spare;
        private final long high = number("high"); // later than any before, since time has passed
        private int next;
        private volatile long done;
        private Thread thread;

        Producer(String work, Timeout[] timeouts, long[] delays, int k, int share) {
            this.work = work;
            this.timeouts = timeouts;
            this.delays = delays;
            spare = n + k;
            order = new int[share];
            SplittableRandom random = new SplittableRandom(number("seed") + 2 + k);
            for (int i = 0; i < share; i++) {
                int j = random.nextInt(i + 1);
                order[i] = order[j];
                order[j] = k * share + i;
            }
        }

        void begin(CountDownLatch start, long duration) {
            thread = new Thread(() -> {
                try {
                    start.await();
                } catch (InterruptedException e) {
                    return;
                }
                long until = System.nanoTime() + duration;
                while (System.nanoTime() - until < 0) {
                    for (int i = 0; i < BATCH; i++) {
                        operate();
                    }
                    done += BATCH;
                }
            });
            thread.start();
        }

        private void operate() {
            int at = order[next];
            switch (work) {
                case "replace", "move" -> {
                    timeouts[at].cancel();
                    timeouts[at] = timer.newTimeout(
                        NOTHING, delays[(int) ((done + next) & (DELAYS - 1))], TimeUnit.NANOSECONDS);
                }
                case "instant" -> {
                    timeouts[spare] = timer.newTimeout(NOTHING, delays[next & (DELAYS - 1)], TimeUnit.NANOSECONDS);
                    timeouts[spare].cancel();
                }
                case "reschedule" -> {
                    timeouts[at].cancel();
                    timeouts[at] = timer.newTimeout(NOTHING, high, TimeUnit.NANOSECONDS);
                }
                default -> throw new IllegalStateException(work);
            }
            if (++next == order.length) {
                next = 0;
            }
        }
    }

    private void expiry() throws Exception {
        long[] delays = delays(number("expiryLow"), number("expiryHigh"));
        long[] deadlines = new long[n];
        long[] errors = new long[n];
        AtomicIntegerArray fires = new AtomicIntegerArray(n);
        AtomicLong fired = new AtomicLong();
        System.gc();
        for (int i = 0; i < n; i++) {
            int at = i;
            deadlines[at] = System.nanoTime() + delays[at % DELAYS];
            timer.newTimeout(timeout -> {
                long error = System.nanoTime() - deadlines[at];
                if (fires.incrementAndGet(at) == 1) {
                    errors[at] = error;
                    fired.incrementAndGet();
                }
            }, delays[at % DELAYS], TimeUnit.NANOSECONDS);
        }
        long used = processCPU();
        long already = fired.get();
        long giveUp = System.nanoTime() + number("expiryHigh") + number("patience");
        while (fired.get() < n && System.nanoTime() - giveUp < 0) {
            TimeUnit.NANOSECONDS.sleep(number("tick"));
        }
        used = processCPU() - used;
        long counted = fired.get() - already;
        TimeUnit.NANOSECONDS.sleep(10 * number("tick")); // time to fire twice

        int early = 0;
        int lost = 0;
        int twice = 0;
        long[] sorted = new long[n];
        int count = 0;
        for (int i = 0; i < n; i++) {
            if (fires.get(i) == 0) {
                lost++;
                continue;
            }
            if (fires.get(i) > 1) {
                twice++;
            }
            if (errors[i] < 0) {
                early++;
            }
            sorted[count++] = errors[i];
        }
        metrics.put("early", (double) early);
        metrics.put("lost", (double) lost);
        metrics.put("twice", (double) twice);
        if (count == 0 || counted == 0) {
            return;
        }
        Arrays.sort(sorted, 0, count);
        metrics.put("early_percent", 100.0 * early / count);
        metrics.put("earliest_ms", sorted[0] / 1e6);
        metrics.put("p50_ms", sorted[(int) (0.5 * (count - 1))] / 1e6);
        metrics.put("p99_ms", sorted[(int) (0.99 * (count - 1))] / 1e6);
        metrics.put("max_ms", sorted[count - 1] / 1e6);
        metrics.put("cpu_ns", (double) used / counted);
    }

    private void memory() throws Exception {
        long[] delays = delays(number("low"), number("high"));
        long before = heapBytes();
        Timeout[] timeouts = fill(delays, 0);
        TimeUnit.NANOSECONDS.sleep(number("settle"));
        metrics.put("bytes", (double) (heapBytes() - before) / n);
        if (timeouts[n - 1].isExpired()) { // keeps them alive up to here
            throw new IllegalStateException("a timer has expired");
        }
    }

    private void hold() throws Exception {
        Timeout[] timeouts = fill(delays(number("low"), number("high")), 0);
        settle();
        long began = System.nanoTime();
        long used = processCPU();
        TimeUnit.NANOSECONDS.sleep(number("hold"));
        double seconds = (System.nanoTime() - began) / 1e9;
        metrics.put("cpu_ms_per_s", (processCPU() - used) / 1e6 / seconds);
        if (timeouts[n - 1].isExpired()) {
            throw new IllegalStateException("a timer has expired");
        }
    }

    private static long heapBytes() throws InterruptedException {
        for (int i = 0; i < 3; i++) {
            System.gc();
            Thread.sleep(50);
        }
        Runtime r = Runtime.getRuntime();
        return r.totalMemory() - r.freeMemory();
    }

    private static long processCPU() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
