import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.lease.LeaseKeepAliveResponse;
import io.grpc.stub.StreamObserver;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Takes locks with jetcd's lock client as the lines on standard input say; each gets one line in
 * reply. Started with the address of the server.
 */
public final class JetcdPartner {
    private record Held(long lease, ByteSequence key, AutoCloseable alive) {}

    private static Client client;

    public static void main(String[] args) throws Exception {
        client = Client.builder().endpoints(args[0]).build();
        Map<String, Held> locks = new HashMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(answer(locks, line.split(" ")));
        }
        System.exit(0);
    }

    private static String answer(Map<String, Held> locks, String[] words) throws Exception {
        String name = words[1];
        switch (words[0]) {
            case "try": { // jetcd cannot try: it gives up after a moment, and its lease goes
                Held held = lock(name, words[2], 1000);
                if (held != null) {
                    locks.put(name, held);
                }
                return held != null ? "yes" : "no";
            }
            case "lock":
                locks.put(name, lock(name, words[2], 0));
                return "yes";
            case "unlock":
                unlock(locks.remove(name));
                return "yes";
            case "count":
                count(name, words[2], Path.of(words[3]), Integer.parseInt(words[4]), Integer.parseInt(words[5]));
                return "yes";
            default:
                return "what?";
        }
    }

    /** Each has a lease of its own: the server names the lock after it. */
    private static Held lock(String name, String millis, long patience) throws Exception {
        long ttl = Math.max(1, Long.parseLong(millis) / 1000);
        long lease = client.getLeaseClient().grant(ttl).get().getID();
        AutoCloseable alive = client.getLeaseClient().keepAlive(lease, new Ignore());
        ByteSequence bytes = ByteSequence.from(name, StandardCharsets.UTF_8);
        CompletableFuture<ByteSequence> key =
                client.getLockClient().lock(bytes, lease).thenApply(reply -> reply.getKey());
        try {
            ByteSequence got = patience > 0 ? key.get(patience, TimeUnit.MILLISECONDS) : key.get();
            return new Held(lease, got, alive);
        } catch (TimeoutException e) {
            alive.close();
            client.getLeaseClient().revoke(lease).get();
            return null;
        }
    }

    private static void unlock(Held held) throws Exception {
        client.getLockClient().unlock(held.key).get();
        held.alive.close();
        client.getLeaseClient().revoke(held.lease).get();
    }

    /** Adds to the number in a file: wrong unless the lock excludes. */
    private static void count(String name, String millis, Path file, int threads, int times) throws Exception {
        ArrayList<Thread> all = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            Thread thread = new Thread(() -> {
                try {
                    for (int n = 0; n < times; n++) {
                        Held held = lock(name, millis, 0);
                        int number = Integer.parseInt(Files.readString(file).trim());
                        Thread.yield();
                        Files.writeString(file, (number + 1) + "\n");
                        unlock(held);
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

    private static final class Ignore implements StreamObserver<LeaseKeepAliveResponse> {
        public void onNext(LeaseKeepAliveResponse value) {}

        public void onError(Throwable error) {}

        public void onCompleted() {}
    }
}
