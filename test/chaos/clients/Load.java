import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Does with Kafka's own client what load.py does with librdkafka, and prints the same lines. */
public final class Load {
    private static final long EVERY_MILLIS = 10;
    private final String address;
    private final String topic;
    private final long[] sent;
    private final long[] seen;
    private final long[] lastAck;
    private long acked;
    private long ackPause;
    private long read;
    private long lastRead = System.nanoTime();
    private long readPause;
    private volatile boolean closed;
    private volatile boolean over;

    private Load(String address, String topic, int partitions) {
        this.address = address;
        this.topic = topic;
        sent = new long[partitions];
        seen = new long[partitions];
        lastAck = new long[partitions];
        Arrays.fill(lastAck, System.nanoTime());
    }

    public static void main(String[] args) throws Exception {
        new Load(args[0], args[1], Integer.parseInt(args[2])).run();
    }

    private void run() throws Exception {
        Thread reader = new Thread(this::consume);
        reader.start();
        Thread listener = new Thread(this::listen);
        listener.setDaemon(true);
        listener.start();
        produce();
        long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        while (!whole() && System.nanoTime() < deadline) {
            Thread.sleep(EVERY_MILLIS);
        }
        synchronized (this) {
            if (!Arrays.equals(seen, sent)) {
                say("E read up to " + Arrays.toString(seen) + " of " + Arrays.toString(sent));
            }
        }
        over = true;
        reader.join();
        say("R " + acked + " " + read);
    }

    private static synchronized void say(String text) {
        System.out.println(text);
        System.out.flush();
    }

    private synchronized boolean whole() {
        return Arrays.equals(seen, sent);
    }

    private void produce() throws InterruptedException {
        Map<String, Object> config = Map.of("bootstrap.servers", address, "acks", "all", "enable.idempotence", true, "linger.ms", 0,
            "retry.backoff.ms", 20, "retry.backoff.max.ms", 20, "reconnect.backoff.ms", 20, "reconnect.backoff.max.ms", 200);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            while (!closed) {
                for (int p = 0; p < sent.length; p++) {
                    String value;
                    synchronized (this) {
                        value = Long.toString(++sent[p]);
                    }
                    producer.send(new ProducerRecord<>(topic, p, null, value), (made, e) -> answered(made == null ? -1 : made.partition(), e));
                }
                Thread.sleep(EVERY_MILLIS);
            }
            producer.flush();
        }
    }

    private synchronized void answered(int partition, Exception e) {
        if (e != null) {
            say("E a record: " + e);
            return;
        }
        long now = System.nanoTime();
        ackPause = Math.max(ackPause, now - lastAck[partition]);
        lastAck[partition] = now;
        acked++;
    }

    private void consume() {
        Map<String, Object> config = Map.of("bootstrap.servers", address, "group.id", topic, "auto.offset.reset", "earliest",
            "fetch.max.wait.ms", 100, "retry.backoff.ms", 20, "reconnect.backoff.ms", 20, "reconnect.backoff.max.ms", 200);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (!over) {
                consumer.poll(Duration.ofMillis(100)).forEach(r -> took(r.partition(), Long.parseLong(r.value())));
            }
        } catch (RuntimeException e) {
            say("E the consumer: " + e);
        }
    }

    private synchronized void took(int partition, long n) {
        if (n > seen[partition] + 1) {
            say("E partition " + partition + ": record " + n + " was read after " + seen[partition]);
        }
        if (n == seen[partition] + 1) {
            read++;
        }
        seen[partition] = Math.max(seen[partition], n);
        long now = System.nanoTime();
        if (read > 1) {
            readPause = Math.max(readPause, now - lastRead);
        }
        lastRead = now;
    }

    private void listen() {
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
            while (in.readLine() != null) {
                pauses();
            }
        } catch (java.io.IOException e) {
            say("E its input: " + e);
        }
        closed = true;
    }

    private synchronized void pauses() {
        long now = System.nanoTime();
        long acks = ackPause;
        for (long at : lastAck) {
            acks = Math.max(acks, now - at);
        }
        say("P " + acks / 1_000_000 + " " + Math.max(readPause, now - lastRead) / 1_000_000);
        ackPause = 0;
        readPause = 0;
        Arrays.fill(lastAck, now);
    }
}
