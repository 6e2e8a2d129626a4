import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;

/** What a driver tells the harness: a line of JSON for each event, on standard output. For use by any thread. */
final class Events {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final PrintStream OUT =
      new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);

  private Events() {}

  static ObjectNode of(String event) {
    return JSON.createObjectNode().put("event", event);
  }

  static void print(ObjectNode event) {
    try {
      String line = JSON.writeValueAsString(event);
      synchronized (OUT) {
        OUT.print(line + "\n");
        OUT.flush();
      }
    } catch (JsonProcessingException e) {
      throw new IllegalStateException(e);
    }
  }

  static void record(ConsumerRecord<String, String> r) {
    ObjectNode event = of("record").put("partition", r.partition()).put("offset", r.offset())
        .put("key", r.key()).put("value", r.value());
    ArrayNode headers = event.putArray("headers");
    for (var h : r.headers()) {
      headers.addArray().add(h.key()).add(h.value() == null ? null : new String(h.value(), StandardCharsets.UTF_8));
    }
    print(event.put("timestamp", r.timestamp()));
  }

  static void assigned(Collection<TopicPartition> partitions) {
    ObjectNode event = of("assigned");
    ArrayNode list = event.putArray("partitions");
    partitions.stream().map(TopicPartition::partition).sorted().forEach(list::add);
    print(event);
  }

  /** Becomes true when the harness closes standard input: the driver is to end. */
  static AtomicBoolean end() {
    var ended = new AtomicBoolean();
    var reader = new Thread(() -> {
      try {
        while (System.in.read() >= 0) {}
      } catch (IOException e) {
        // It is closed: that is what was waited for.
      }
      ended.set(true);
    });
    reader.setDaemon(true);
    reader.start();
    return ended;
  }
}
