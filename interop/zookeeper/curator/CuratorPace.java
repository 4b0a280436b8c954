import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/**
 * Takes one lock of Curator again and again, and prints three moments of each turn in nanoseconds: when
 * it asked, when it was inside, and when it began to leave. Started with the port of the server, the
 * lock's path, the milliseconds inside, and how many seconds to warm up and then to measure.
 */
public final class CuratorPace {
    public static void main(String[] args) throws Exception {
        long hold = TimeUnit.MILLISECONDS.toNanos(Long.parseLong(args[2]));
        CuratorFramework client =
                CuratorFrameworkFactory.newClient("127.0.0.1:" + args[0], 30_000, 5000, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        InterProcessMutex lock = new InterProcessMutex(client, args[1]);
        long warm = System.nanoTime() + TimeUnit.SECONDS.toNanos(Long.parseLong(args[3]));
        long end = warm + TimeUnit.SECONDS.toNanos(Long.parseLong(args[4]));
        StringBuilder turns = new StringBuilder();
        for (long asked = System.nanoTime(); asked < end; asked = System.nanoTime()) {
            lock.acquire();
            long entered = System.nanoTime();
            for (long left = hold; left > 0; left = entered + hold - System.nanoTime()) {
                TimeUnit.NANOSECONDS.sleep(left);
            }
            long left = System.nanoTime();
            lock.release();
            if (asked >= warm) {
                turns.append(asked).append(' ').append(entered).append(' ').append(left).append('\n');
            }
        }
        System.out.print(turns);
        client.close();
    }
}
