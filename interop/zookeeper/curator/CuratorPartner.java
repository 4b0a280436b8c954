import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryOneTime;

/**
 * Takes locks with Curator as the lines on standard input say; each gets one line in reply. Started
 * with the port of the server, the session's length in milliseconds and the kind of lock: mutex, read
 * or write.
 */
public final class CuratorPartner {
    private static final Map<String, InterProcessLock> LOCKS = new HashMap<>();
    private static String kind;

    public static void main(String[] args) throws Exception {
        int session = Integer.parseInt(args[1]);
        kind = args[2];
        CuratorFramework client =
                CuratorFrameworkFactory.newClient("127.0.0.1:" + args[0], session, 5000, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(answer(client, line.split(" ")));
        }
        client.close();
    }

    private static InterProcessLock lock(CuratorFramework client, String path) {
        switch (kind) {
            case "read":
                return new InterProcessReadWriteLock(client, path).readLock();
            case "write":
                return new InterProcessReadWriteLock(client, path).writeLock();
            default:
                return new InterProcessMutex(client, path);
        }
    }

    private static String answer(CuratorFramework client, String[] words) throws Exception {
        InterProcessLock lock = LOCKS.computeIfAbsent(words[1], path -> lock(client, path));
        switch (words[0]) {
            case "try":
                return lock.acquire(0, TimeUnit.MILLISECONDS) ? "yes" : "no";
            case "lock":
                lock.acquire();
                return "yes";
            case "unlock":
                lock.release();
                return "yes";
            case "count":
                count(client, words[1], Path.of(words[3]), Integer.parseInt(words[4]), Integer.parseInt(words[5]));
                return "yes";
            default:
                return "what?";
        }
    }

    /** Adds to the number in a file: wrong unless the lock excludes. */
    private static void count(CuratorFramework client, String path, Path file, int threads, int times)
            throws Exception {
        ArrayList<Thread> all = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            InterProcessLock lock = lock(client, path);
            Thread thread = new Thread(() -> {
                try {
                    for (int n = 0; n < times; n++) {
                        lock.acquire();
                        try {
                            int number = Integer.parseInt(Files.readString(file).trim());
                            Thread.yield();
                            Files.writeString(file, (number + 1) + "\n");
                        } finally {
                            lock.release();
                        }
                    }
                } catch (Exception e) {
                    throw new IllegalStateException(e);
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
