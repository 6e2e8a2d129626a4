import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.internals.AppInfoParser;

/** Apache Kafka's Java client as a driver of the client matrix. */
public final class Driver {
  private static final Duration POLL = Duration.ofMillis(200);

  private Driver() {}

  public static void main(String[] args) {
    try {
      run(args);
    } catch (Throwable e) {
      e.printStackTrace();
      System.err.println(e);
      System.exit(1);
    }
    System.exit(0);
  }

  private static void run(String[] args) throws Exception {
    switch (args.length == 0 ? "" : args[0]) {
      case "version" -> Events.print(Events.of("version").put("version", AppInfoParser.getVersion()));
      case "produce" -> produce(new Args(args, Set.of("bootstrap", "topic", "count"),
          Set.of("codec", "from", "idempotent", "timestamp")));
      case "consume" -> consume(new Args(args, Set.of("bootstrap", "topic", "count"), Set.of()));
      case "member" -> new Member(new Args(args, Set.of("bootstrap", "topic", "group"),
          Set.of("instance", "protocol"))).run();
      case "admin" -> new AdminCalls(new Args(args, Set.of("bootstrap", "topic"), Set.of())).run();
      default -> throw new IllegalArgumentException("usage: Driver version|produce|consume|member|admin key=value...");
    }
  }

  private static void produce(Args a) throws Exception {
    var p = new Properties();
    p.put("bootstrap.servers", a.get("bootstrap"));
    p.put("compression.type", a.get("codec", "none"));
    p.put("enable.idempotence", a.truth("idempotent", false));
    p.put("acks", "all");
    p.put("linger.ms", 20);
    long from = a.number("from", 0);
    long count = a.number("count", 0);
    long timestamp = a.number("timestamp", System.currentTimeMillis());
    var sent = new ArrayList<Future<RecordMetadata>>();
    try (var producer = new KafkaProducer<>(p, new StringSerializer(), new StringSerializer())) {
      for (long i = from; i < from + count; i++) {
        String value = "v-" + i + "-" + String.valueOf((char) ('a' + i % 26)).repeat(100);
        var r = new ProducerRecord<>(a.get("topic"), i % 3 == 0 ? 0 : null, timestamp + i, "k-" + i, value);
        r.headers().add("n", Long.toString(i).getBytes(StandardCharsets.UTF_8)).add("empty", new byte[0]);
        sent.add(producer.send(r));
      }
      producer.flush();
      for (var f : sent) f.get();
    }
    Events.print(Events.of("produced").put("count", sent.size()));
  }

  private static KafkaConsumer<String, String> consumer(Properties p) {
    return new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer());
  }

  private static void consume(Args a) {
    var p = new Properties();
    p.put("bootstrap.servers", a.get("bootstrap"));
    try (var consumer = consumer(p)) {
      List<TopicPartition> all = consumer.partitionsFor(a.get("topic")).stream()
          .map(i -> new TopicPartition(i.topic(), i.partition())).toList();
      consumer.assign(all);
      consumer.seekToBeginning(all);
      for (long left = a.number("count", 0); left > 0; ) {
        for (var r : consumer.poll(POLL)) {
          if (left-- > 0) Events.record(r);
        }
      }
    }
  }

  /** A member of a group: processes, commits, and tells of both, until standard input ends. */
  private static final class Member implements ConsumerRebalanceListener {
    private final Args args;
    private final KafkaConsumer<String, String> consumer;
    // What is processed and not yet committed, of the partitions that it has.
    private final Map<TopicPartition, OffsetAndMetadata> pending = new HashMap<>();
    private boolean rebalanced;

    Member(Args args) {
      this.args = args;
      var p = new Properties();
      p.put("bootstrap.servers", args.get("bootstrap"));
      p.put("group.id", args.get("group"));
      if (args.get("instance") != null) p.put("group.instance.id", args.get("instance"));
      p.put("partition.assignment.strategy", switch (args.get("protocol", "eager")) {
        case "eager" -> RangeAssignor.class.getName();
        case "cooperative" -> CooperativeStickyAssignor.class.getName();
        default -> throw new IllegalArgumentException("protocol is eager or cooperative");
      });
      p.put("session.timeout.ms", 6000);
      p.put("heartbeat.interval.ms", 1000);
      p.put("max.poll.interval.ms", 10000);
      p.put("auto.offset.reset", "earliest");
      p.put("enable.auto.commit", false);
      consumer = consumer(p);
    }

    void run() {
      var end = Events.end();
      consumer.subscribe(List.of(args.get("topic")), this);
      while (!end.get()) {
        ConsumerRecords<String, String> records = consumer.poll(POLL);
        if (rebalanced) {
          rebalanced = false;
          Events.assigned(consumer.assignment());
        }
        for (var r : records) {
          Events.record(r);
          pending.put(new TopicPartition(r.topic(), r.partition()), new OffsetAndMetadata(r.offset() + 1));
        }
        commit();
      }
      // A static member stays in the group unless it is told to leave (KIP-1092).
      consumer.close(CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP));
    }

    private void commit() {
      if (pending.isEmpty()) return;
      try {
        consumer.commitSync(pending);
      } catch (RebalanceInProgressException e) {
        System.err.println("commit later: " + e); // what it keeps stays pending, the next poll says what that is
        return;
      } catch (CommitFailedException e) {
        System.err.println("not committed: " + e); // it was thrown out, and gets a new assignment
        pending.clear();
        return;
      }
      pending.forEach((tp, o) ->
          Events.print(Events.of("committed").put("partition", tp.partition()).put("offset", o.offset())));
      pending.clear();
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
      rebalanced = true;
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
      commit();
      pending.keySet().removeAll(partitions);
      rebalanced = true;
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
      pending.keySet().removeAll(partitions);
      rebalanced = true;
    }
  }
}
