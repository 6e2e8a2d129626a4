import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.internals.AppInfoParser;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.StateRestoreListener;

/**
 * Kafka Streams: "split" writes each word of what it reads to another topic, without state; "count" counts the words
 * in a store with a changelog. Both at least once, which is Streams' default. An instance runs until its standard input
 * ends.
 *
 * <p>It tells of {"event":"running"} and the other states of Streams; of {"event":"assigned","partitions":[0,1]}, the
 * partitions of the counts (or of the input) that it has, whenever that changes; and of {"event":"restored","count":7},
 * the records of a changelog that a store was filled from.
 */
public final class Streams {
  private Streams() {}

  public static void main(String[] args) {
    try {
      String command = args.length == 0 ? "" : args[0];
      switch (command) {
        case "version" -> Events.print(Events.of("version").put("version", AppInfoParser.getVersion()));
        case "split", "count" ->
            run(command, new Args(args, Set.of("bootstrap", "app", "in", "out", "dir"), Set.of()));
        default -> throw new IllegalArgumentException("usage: Streams version|split|count key=value...");
      }
    } catch (Throwable e) {
      e.printStackTrace();
      System.err.println(e);
      System.exit(1);
    }
    System.exit(0);
  }

  private static void run(String command, Args a) throws InterruptedException {
    var end = Events.end();
    var streams = new KafkaStreams(command.equals("count") ? count(a) : split(a), config(a));
    streams.setStateListener((now, before) -> Events.print(Events.of(now.name().toLowerCase(Locale.ROOT))));
    streams.setGlobalStateRestoreListener(new StateRestoreListener() {
      @Override
      public void onRestoreStart(TopicPartition p, String store, long from, long to) {}

      @Override
      public void onBatchRestored(TopicPartition p, String store, long to, long count) {}

      @Override
      public void onRestoreEnd(TopicPartition p, String store, long total) {
        Events.print(Events.of("restored").put("partition", p.partition()).put("count", total));
      }
    });
    streams.start();
    Set<Integer> told = null;
    while (!end.get()) {
      if (streams.state() == KafkaStreams.State.ERROR) throw new IllegalStateException("Streams has given up");
      var now = new TreeSet<Integer>();
      for (var thread : streams.metadataForLocalThreads()) {
        for (var task : thread.activeTasks()) {
          // The store is in the second part of the topology, behind the repartition topic.
          if (task.taskId().subtopology() == (command.equals("count") ? 1 : 0)) now.add(task.taskId().partition());
        }
      }
      if (streams.state() == KafkaStreams.State.RUNNING && !now.equals(told)) {
        told = now;
        var event = Events.of("assigned");
        ArrayNode list = event.putArray("partitions");
        now.forEach(list::add);
        Events.print(event);
      }
      Thread.sleep(50);
    }
    streams.close();
  }

  private static Properties config(Args a) {
    var p = new Properties();
    p.put(StreamsConfig.APPLICATION_ID_CONFIG, a.get("app"));
    p.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, a.get("bootstrap"));
    p.put(StreamsConfig.STATE_DIR_CONFIG, a.get("dir"));
    p.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    p.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    p.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 500);
    // What was counted is deleted from the repartition topic soon, so that this is part of the test.
    p.put(StreamsConfig.REPARTITION_PURGE_INTERVAL_MS_CONFIG, 1000);
    // An instance that dies goes quickly, and none that waits for a busy machine.
    p.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 10000);
    p.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), 1000);
    p.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
    return p;
  }

  private static KStream<String, String> words(StreamsBuilder b, Args a) {
    return b.<String, String>stream(a.get("in"))
        .flatMapValues(line -> Arrays.asList(line.toLowerCase(Locale.ROOT).split("\\W+")));
  }

  private static Topology split(Args a) {
    var b = new StreamsBuilder();
    words(b, a).to(a.get("out"));
    return b.build();
  }

  private static Topology count(Args a) {
    var b = new StreamsBuilder();
    words(b, a)
        .groupBy((key, word) -> word, Grouped.as("words"))
        .count(Materialized.as("counts"))
        .toStream()
        .mapValues(n -> Long.toString(n))
        .to(a.get("out"), Produced.with(Serdes.String(), Serdes.String()));
    return b.build();
  }
}
