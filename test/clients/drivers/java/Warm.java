import java.io.IOException;
import java.time.Duration;
import java.util.Properties;
import java.util.jar.JarFile;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Loads the classes that the programs here will need, and needs no broker for that. scripts/tools has the JVM write an
 * archive of them, from which they start with half of the CPU.
 */
public final class Warm {
  private Warm() {}

  public static void main(String[] args) throws Exception {
    var p = new Properties();
    p.put("bootstrap.servers", "127.0.0.1:9"); // never asked: nothing is waited for
    new KafkaProducer<>(p, new StringSerializer(), new StringSerializer()).close(Duration.ZERO);
    new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer()).close();
    Admin.create(p).close(Duration.ZERO);
    for (Class<?> c : new Class<?>[] {Admin.class, org.apache.kafka.streams.KafkaStreams.class, Warm.class}) loadAll(c);
  }

  /** Loads all classes of the jar that a class comes from. */
  private static void loadAll(Class<?> from) throws IOException {
    try (var jar = new JarFile(from.getProtectionDomain().getCodeSource().getLocation().getPath())) {
      for (var entries = jar.entries(); entries.hasMoreElements(); ) {
        String name = entries.nextElement().getName();
        if (!name.endsWith(".class") || name.startsWith("META-INF/")) continue;
        try {
          Class.forName(name.replace('/', '.').replaceFirst("\\.class$", ""), false, Warm.class.getClassLoader());
        } catch (LinkageError | ClassNotFoundException e) {
          // A class for something optional that is not there.
        }
      }
    }
  }
}
