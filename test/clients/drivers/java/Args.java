import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

/** The key=value arguments of a command. A key that the command does not know is an error, and so is one it misses. */
final class Args {
  private final Map<String, String> values = new HashMap<>();

  Args(String[] args, Set<String> required, Set<String> optional) {
    for (int i = 1; i < args.length; i++) {
      int eq = args[i].indexOf('=');
      String key = eq < 0 ? args[i] : args[i].substring(0, eq);
      if (eq < 0 || !(required.contains(key) || optional.contains(key))) {
        throw new IllegalArgumentException(args[0] + ": unknown argument " + args[i]);
      }
      values.put(key, args[i].substring(eq + 1));
    }
    var missing = new TreeSet<>(required);
    missing.removeAll(values.keySet());
    if (!missing.isEmpty()) throw new IllegalArgumentException(args[0] + " needs " + String.join("=, ", missing) + "=");
  }

  String get(String key) {
    return values.get(key);
  }

  String get(String key, String otherwise) {
    return values.getOrDefault(key, otherwise);
  }

  long number(String key, long otherwise) {
    return values.containsKey(key) ? Long.parseLong(values.get(key)) : otherwise;
  }

  boolean truth(String key, boolean otherwise) {
    return values.containsKey(key) ? Boolean.parseBoolean(values.get(key)) : otherwise;
  }
}
