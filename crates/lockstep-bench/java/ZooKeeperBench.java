import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;

/**
 * What Java's clients do: `raw|free|contended SERVERS THREADS WARM_UP_MS TIME_MS`.
 *
 * raw: create, list and delete, a connection and a directory per thread. free: Curator's mutex, a
 * path per thread. contended: Curator's mutex, one path and a connection per thread.
 */
public final class ZooKeeperBench {
    private interface Lap {
        void run() throws Exception;
    }

    public static void main(String[] words) throws Exception {
        int threads = Integer.parseInt(words[2]);
        AtomicLongArray counts = new AtomicLongArray(threads);
        AtomicBoolean stop = new AtomicBoolean();
        Thread[] running = new Thread[threads];
        for (int number = 0; number < threads; number++) {
            int me = number;
            Lap lap = lap(words[0], words[1], me);
            running[number] = new Thread(() -> {
                try {
                    while (!stop.get()) {
                        lap.run();
                        counts.incrementAndGet(me);
                    }
                } catch (Exception error) {
                    error.printStackTrace();
                    System.exit(1);
                }
            });
        }
        for (Thread thread : running) {
            thread.start();
        }
        Thread.sleep(Long.parseLong(words[3]));
        long[] before = new long[threads];
        for (int number = 0; number < threads; number++) {
            before[number] = counts.get(number);
        }
        long from = System.nanoTime();
        Thread.sleep(Long.parseLong(words[4]));
        double seconds = (System.nanoTime() - from) / 1e9;
        long sum = 0;
        long least = Long.MAX_VALUE;
        long most = 1;
        for (int number = 0; number < threads; number++) {
            long done = counts.get(number) - before[number];
            sum += done;
            least = Math.min(least, done);
            most = Math.max(most, done);
        }
        System.out.println(sum / seconds + " " + (double) least / most);
        System.exit(0);
    }

    private static Lap lap(String kind, String servers, int me) throws Exception {
        // A run's last nodes live as long as its sessions, so each has paths of its own.
        long run = ProcessHandle.current().pid();
        if (kind.equals("raw")) {
            return raw(servers, "/raw-" + run + "-" + me);
        }
        CuratorFramework client = curator(servers);
        String path = kind.equals("free") ? "/curator-" + run + "-" + me : "/curator-" + run;
        InterProcessMutex mutex = new InterProcessMutex(client, path);
        return () -> {
            mutex.acquire();
            mutex.release();
        };
    }

    private static CuratorFramework curator(String servers) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(servers, new ExponentialBackoffRetry(50, 10));
        client.start();
        client.blockUntilConnected();
        return client;
    }

    private static Lap raw(String servers, String path) throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper client = new ZooKeeper(servers, 20000, event -> connected.countDown());
        connected.await(20, TimeUnit.SECONDS);
        client.create(path, new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        return () -> {
            String node = client.create(
                path + "/lock-", new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL_SEQUENTIAL);
            client.getChildren(path, false);
            client.delete(node, -1);
        };
    }
}
