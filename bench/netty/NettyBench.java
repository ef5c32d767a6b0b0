import com.sun.management.OperatingSystemMXBean;
import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import java.lang.management.ManagementFactory;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Scanner;
import java.util.StringJoiner;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.IntConsumer;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * Measures Netty's HashedWheelTimer as measure.go does the subjects in Go. Each line of input has the fields of a
 * load, durations in nanoseconds, and is answered by one line of JSON.
 */
public final class NettyBench {
    private static final long TICK = TimeUnit.MILLISECONDS.toNanos(10);
    private static final int SLOTS = 1 << 14; // at 10 ms a turn is longer than any delay here
    private static final long MINUTE = TimeUnit.MINUTES.toNanos(1);

    private final int n;
    private final int passes;
    private final Timeout[] timeouts;
    private final HashedWheelTimer timer = new HashedWheelTimer(TICK, TimeUnit.NANOSECONDS, SLOTS);
    private final Map<String, Double> figures = new LinkedHashMap<>();

    private NettyBench(int n, int passes) {
        this.n = n;
        this.passes = passes;
        timeouts = new Timeout[n];
    }

    public static void main(String[] args) throws Exception {
        for (Scanner in = new Scanner(System.in); in.hasNextInt(); ) {
            NettyBench bench = new NettyBench(in.nextInt(), in.nextInt());
            long expiry = in.nextLong();
            bench.operations();
            bench.expire(expiry);
            bench.timer.stop();
            StringJoiner line = new StringJoiner(",", "{", "}");
            bench.figures.forEach((name, value) -> line.add(String.format(Locale.ROOT, "\"%s\":%.6f", name, value)));
            System.out.println(line);
        }
        System.exit(0);
    }

    private static long delay(long least, int i) {
        return least + i * 7919L % 100_003 * least / 100_003;
    }

    private int[] randomOrder() {
        List<Integer> order = IntStream.range(0, n).boxed().collect(Collectors.toList());
        Collections.shuffle(order);
        return order.stream().mapToInt(Integer::intValue).toArray();
    }

    private void schedule(int i, long delay) {
        timeouts[i] = timer.newTimeout(timeout -> { }, delay, TimeUnit.NANOSECONDS);
    }

    private void reschedule(int i, long delay) {
        timeouts[i].cancel();
        schedule(i, delay);
    }

    private void operations() throws InterruptedException {
        int[] inOrder = IntStream.range(0, n).toArray();
        long before = heapBytes();
        for (int pass = 0; pass < passes; pass++) {
            int next = pass + 1;
            each("schedule", inOrder, i -> schedule(i, delay(MINUTE, i)));
            if (pass == 0) {
                figures.put("memory", (double) (heapBytes() - before) / n);
            }
            each("reschedule", randomOrder(), i -> reschedule(i, delay(MINUTE, i + next)));
            each("touch", randomOrder(), i -> reschedule(i, 2 * MINUTE));
            each("cancel", randomOrder(), i -> timeouts[i].cancel());
        }
    }

    /** Adds the time of an operation per timer. Then the worker takes over what was queued, 100,000 per tick. */
    private void each(String name, int[] indices, IntConsumer operation) throws InterruptedException {
        System.gc();
        long began = System.nanoTime();
        for (int i : indices) {
            operation.accept(i);
        }
        figures.merge(name, (double) (System.nanoTime() - began) / n / passes, Double::sum);
        TimeUnit.NANOSECONDS.sleep((n / 100_000 + 2) * TICK);
    }

    private void expire(long expiry) throws InterruptedException {
        AtomicLong fired = new AtomicLong();
        AtomicLong early = new AtomicLong();
        System.gc();
        for (int i = 0; i < n; i++) {
            long delay = delay(expiry, i);
            long deadline = System.nanoTime() + delay;
            timer.newTimeout(timeout -> {
                if (System.nanoTime() - deadline < 0) {
                    early.incrementAndGet();
                }
                fired.incrementAndGet();
            }, delay, TimeUnit.NANOSECONDS);
        }
        long used = processorTime();
        long already = fired.get();
        while (fired.get() < n) {
            TimeUnit.NANOSECONDS.sleep(TICK);
        }
        figures.put("expire", (double) (processorTime() - used) / Math.max(1, n - already));
        figures.put("early", 100.0 * early.get() / n);
    }

    private static long heapBytes() throws InterruptedException {
        for (int i = 0; i < 3; i++) {
            System.gc();
            Thread.sleep(50);
        }
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }

    private static long processorTime() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
