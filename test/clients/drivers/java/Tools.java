import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs Kafka's command-line tools one after another in one JVM, because a start of a JVM costs a second of CPU and
 * there are some sixty commands. Each is the tool's own main method with its own arguments: what differs from its
 * script in Kafka's bin folder is that "exit" ends the command and not the process, and that its standard output,
 * error and input are a buffer.
 *
 * <p>A line of standard input is a command, {"class": "TopicCommand", "args": ["--list"], "stdin": ""}, with the class
 * below org.apache.kafka.tools; a line of standard output is its answer, {"exit": 0, "stdout": "", "stderr": ""}. The
 * end of standard input ends the program. What the clients log goes to standard error.
 */
public final class Tools {
  /** Ends a tool where it would end its process. */
  private static final class Ended extends Error {
    Ended() {
      super("", null, false, false);
    }

    // A tool that reports whatever is thrown at it shall not report this.
    @Override
    public void printStackTrace(PrintStream s) {}

    @Override
    public void printStackTrace(PrintWriter w) {}
  }

  private final ObjectMapper json = new ObjectMapper();
  private final PrintStream answers = System.out;
  private final PrintStream log = System.err;
  private Integer exit;

  public static void main(String[] args) throws Exception {
    // The loggers take hold of the real standard error before it is ever replaced.
    org.slf4j.LoggerFactory.getLogger(Tools.class).debug("ready");
    new Tools().serve();
    System.exit(0);
  }

  private void serve() throws Exception {
    // Only the first exit counts: a tool may catch what ends it, and exit again.
    Exit.Procedure end = (code, message) -> {
      if (exit == null) exit = code;
      if (message != null) System.err.println(message);
      throw new Ended();
    };
    Exit.setExitProcedure(end);
    Exit.setHaltProcedure(end);
    Exit.setShutdownHookAdder((name, hook) -> {}); // there is no shutdown to wait for
    var commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = commands.readLine()) != null; ) {
      var command = json.readTree(line);
      String[] args = json.treeToValue(command.get("args"), String[].class);
      String answer = json.writeValueAsString(run(command.get("class").asText(), args, command.path("stdin").asText()));
      answers.println(answer);
      answers.flush();
    }
  }

  private Map<String, Object> run(String name, String[] args, String input) throws Exception {
    var main = Class.forName("org.apache.kafka.tools." + name).getMethod("main", String[].class);
    var out = new ByteArrayOutputStream();
    var err = new ByteArrayOutputStream();
    exit = null;
    System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
    System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
    System.setIn(new ByteArrayInputStream(input.getBytes(StandardCharsets.UTF_8)));
    try {
      main.invoke(null, (Object) args);
    } catch (InvocationTargetException e) {
      if (!(e.getCause() instanceof Ended)) {
        e.getCause().printStackTrace();
        if (exit == null) exit = 1;
      }
    } finally {
      System.out.flush();
      System.setOut(answers);
      System.setErr(log);
    }
    var answer = new LinkedHashMap<String, Object>();
    answer.put("exit", exit == null ? 0 : exit);
    answer.put("stdout", out.toString(StandardCharsets.UTF_8));
    answer.put("stderr", err.toString(StandardCharsets.UTF_8));
    return answer;
  }
}
