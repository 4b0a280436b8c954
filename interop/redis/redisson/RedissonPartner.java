import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Takes locks with Redisson as the lines on standard input say; each gets one line in reply. Started
 * with the port of the server and the timeout of the watchdog in milliseconds.
 */
public final class RedissonPartner {
    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.setLockWatchdogTimeout(Long.parseLong(args[1]));
        config.useSingleServer()
                .setAddress("redis://127.0.0.1:" + args[0])
                .setConnectionMinimumIdleSize(2)
                .setConnectionPoolSize(8);
        RedissonClient client = Redisson.create(config);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(answer(client, line.split(" ")));
        }
        client.shutdown();
    }

    private static String answer(RedissonClient client, String[] words) throws Exception {
        RLock lock = client.getLock(words[1]);
        long lease = words.length > 2 ? Long.parseLong(words[2]) : -1;
        switch (words[0]) {
            case "try":
                return lock.tryLock(0, lease, TimeUnit.MILLISECONDS) ? "yes" : "no";
            case "lock": // without a lease the watchdog renews it
                lock.lock(lease, TimeUnit.MILLISECONDS);
                return "yes";
            case "unlock":
                lock.unlock();
                return "yes";
            case "count":
                count(lock, Path.of(words[3]), Integer.parseInt(words[4]), Integer.parseInt(words[5]));
                return "yes";
            default:
                return "what?";
        }
    }

    /** Adds to the number in a file: wrong unless the lock excludes. */
    private static void count(RLock lock, Path file, int threads, int times) throws Exception {
        ArrayList<Thread> all = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            Thread thread = new Thread(() -> {
                for (int n = 0; n < times; n++) {
                    lock.lock();
                    try {
                        int number = Integer.parseInt(Files.readString(file).trim());
                        Thread.yield();
                        Files.writeString(file, (number + 1) + "\n");
                    } catch (java.io.IOException e) {
                        throw new java.io.UncheckedIOException(e);
                    } finally {
                        lock.unlock();
                    }
                }
            });
            thread.start();
            all.add(thread);
        }
        for (Thread thread : all) {
            thread.join();
        }
    }
}
