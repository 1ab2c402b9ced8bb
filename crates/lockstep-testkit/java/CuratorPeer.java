import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Does with Curator what it is told, line by line: `KIND ACTION PATH MILLISECONDS`. */
public final class CuratorPeer {
    private final CuratorFramework client;
    private final Map<String, InterProcessLock> locks = new HashMap<>();
    private final Map<String, InterProcessReadWriteLock> pairs = new HashMap<>();
    private final Map<String, LeaderLatch> latches = new HashMap<>();

    private CuratorPeer(String servers) throws Exception {
        client = CuratorFrameworkFactory.newClient(servers, 20000, 5000, new ExponentialBackoffRetry(50, 10));
        client.start();
        client.blockUntilConnected();
    }

    public static void main(String[] arguments) throws Exception {
        CuratorPeer peer = new CuratorPeer(arguments[0]);
        System.out.println("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            System.out.println(peer.act(words[0], words[1], words[2], Long.parseLong(words[3])));
        }
        peer.client.close();
    }

    private String act(String kind, String action, String path, long millis) throws Exception {
        if (kind.equals("latch")) {
            return latch(action, path, millis);
        }
        InterProcessLock lock = locks.computeIfAbsent(kind + path, name -> lock(kind, path));
        if (action.equals("acquire")) {
            return lock.acquire(millis, TimeUnit.MILLISECONDS) ? "held" : "busy";
        }
        lock.release();
        return "free";
    }

    private InterProcessLock lock(String kind, String path) {
        if (kind.equals("mutex")) {
            return new InterProcessMutex(client, path);
        }
        InterProcessReadWriteLock pair =
            pairs.computeIfAbsent(path, name -> new InterProcessReadWriteLock(client, path));
        return kind.equals("read") ? pair.readLock() : pair.writeLock();
    }

    private String latch(String action, String path, long millis) throws Exception {
        if (action.equals("release")) {
            latches.remove(path).close();
            return "free";
        }
        LeaderLatch latch = latches.get(path);
        if (latch == null) {
            latch = new LeaderLatch(client, path, "curator");
            latches.put(path, latch);
            latch.start();
        }
        return latch.await(millis, TimeUnit.MILLISECONDS) ? "held" : "busy";
    }
}
