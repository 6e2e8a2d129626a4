package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/brokerd/brokerd/configs"
)

func TestDevIsTheDefaults(t *testing.T) {
	l, err := Load(Sources{File: "dev.yaml", Content: configs.Dev})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), l.Config, equateEmpty()); diff != "" {
		t.Errorf("dev.yaml is not the defaults (-default +file):\n%s", diff)
	}
	for _, v := range l.Values {
		if v.Origin == originDefault {
			t.Errorf("dev.yaml does not mention %s", v.Name)
		}
	}
	if len(l.Warnings) > 0 {
		t.Errorf("warnings: %q", l.Warnings)
	}
}

func equateEmpty() cmp.Option {
	return cmp.FilterValues(func(a, b []string) bool { return len(a)+len(b) == 0 }, cmp.Comparer(func(_, _ []string) bool { return true }))
}

func TestServerLoads(t *testing.T) {
	l, err := Load(Sources{File: "server.yaml", Content: configs.Server})
	if err != nil {
		t.Fatal(err)
	}
	if got := l.ReachWarnings("broker1"); len(got) > 0 {
		t.Errorf("warnings: %q", got)
	}
}

func TestThreeNodesLoad(t *testing.T) {
	files, err := configs.ThreeNodes.ReadDir("three-nodes")
	if err != nil || len(files) != 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for i, f := range files {
		content, err := configs.ThreeNodes.ReadFile("three-nodes/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		l, err := Load(Sources{File: f.Name(), Content: content})
		if err != nil {
			t.Fatal(err)
		}
		host := fmt.Sprintf("broker%d.example.com", i+1)
		if int(l.NodeID) != i+1 || l.Advertised[0].Host != host || len(l.Cluster.Seeds) != 3 || l.Cluster.Seeds[i] != host+":9190" ||
			!l.Transport.Used() || !strings.Contains(string(l.Transport.Config), host) || len(l.Warnings) > 0 {
			t.Errorf("%s: %+v, %q", f.Name(), l.Config, l.Warnings)
		}
		if got := l.ReachWarnings("broker1"); len(got) > 0 {
			t.Errorf("warnings: %q", got)
		}
	}
}

func TestFileMistakes(t *testing.T) {
	for _, tc := range []struct {
		name, yaml string
		want       []string // all of them, in this order
	}{
		{"a slip", "node.id: 1\nlissteners: x", []string{`f.yaml:2: unknown key "lissteners"; did you mean "listeners"?`}},
		{"swapped letters", "advertised.listenres: x", []string{`did you mean "advertised.listeners"?`}},
		{"another case", "nodeId: 1", []string{`did you mean "node.id"?`}},
		{"a topic's name for it", "retention.ms: 1", []string{`did you mean "log.retention.ms"?`}},
		{"nested", "log:\n  level: info\n  lvel: x", []string{`f.yaml:3: unknown key "log.lvel"; did you mean "log.level"?`}},
		{"like nothing", "zzzzzzzz: 1", []string{`f.yaml:1: unknown key "zzzzzzzz"; ` + "`brokerd config show`"}},
		{"all at once", "node.id: x\n\nflush: never\nfoo: 1", []string{"f.yaml:1: node.id: \"x\"", "f.yaml:3: flush: \"never\" is not one of replicated, always, interval", "f.yaml:4: unknown key"}},
		{"a topic setting", "log.segment.bytes: 1", []string{`f.yaml:1: log.segment.bytes: it cannot be "1": it must be`}},
		{"idle at once", "connections.max.idle.ms: 0", []string{"f.yaml:1: connections.max.idle.ms: 0 would close"}},
		{"too many partitions", "num.partitions: 10001", []string{"f.yaml:1: num.partitions: 10001 is more than a topic can be made with, which is 10000"}},
		{"a dotted store's unknown key", "storage.stores.main.plugin: a\nstorage.stores.main.path: b", []string{`f.yaml:2: storage.stores: store main has the unknown key "path"`}},
		{"a store's name with a dot", "storage.stores: {ma.in: {plugin: a}}", []string{`f.yaml:1: storage.stores: store ma has the unknown key "in"; a store has plugin, carrier and config, and the plugin's own keys go below config; a store's name is made of small letters, digits and dashes, without dots`}},
		{"a carrier that there is none of", "storage.stores.main: {plugin: a, carrier: pigeon}", []string{`f.yaml:1: storage.stores: store main: there is no carrier "pigeon"; it is one of auto, socket, grpc`}},
		{"two carriers", "storage.stores.main: {plugin: a, carrier: grpc}\nstorage.stores.main.carrier: auto", []string{"f.yaml:2: storage.stores: store main names its carrier twice"}},
		{"a dotted store twice", "storage.stores.main.plugin: a\nstorage: {stores: {main: {config: {}}}}", []string{"f.yaml:2: storage.stores is set twice"}},
		{"twice", "log.level: info\nlog: {level: debug}", []string{"f.yaml:2: log.level is set twice, first at line 1"}},
		{"the same key twice", "node.id: 1\nnode.id: 2", []string{"f.yaml:2: not valid YAML"}},
		{"syntax", "node.id: [1\nflush: x", []string{"f.yaml:", "not valid YAML"}},
		{"no value", "node.id:", []string{"f.yaml:1: node.id has no value"}},
		{"a value for a section", "cluster: yes", []string{"f.yaml:1: cluster is a section"}},
		{"a list", "- a\n- b", []string{"f.yaml:1: the file is not a mapping"}},
		{"two documents", "node.id: 1\n---\nnode.id: 2", []string{"a second document"}},
		{"anchors", "node.id: &x 1\nbroker.rack: *x", []string{"f.yaml:1: node.id is written with anchor", "f.yaml:2: broker.rack is written with alias"}},
		{"number out of range", "node.id: 99999999999", []string{"f.yaml:1: node.id: \"99999999999\" is not a whole number in range"}},
		{"bool", "auto.create.topics.enable: yes", []string{`"yes" is neither true nor false`}},
		{"size", "memory: 12 parsecs", []string{`f.yaml:1: memory: "12 parsecs" is not a size`}},
		{"duration", "log.retention.ms: soon", []string{`f.yaml:1: log.retention.ms: `, `"soon"`, `it must be a whole number`}},
		{"hours", "log.retention.hours: soon", []string{`f.yaml:1: log.retention.hours: "soon" is not a whole number`}},
		{"listener", "listeners: 127.0.0.1:9092", []string{`write it as PLAINTEXT://host:port`}},
		{"port", "listeners: PLAINTEXT://h:99999", []string{`a port is a number from 0 to 65535`}},
		{"wildcard advertised", "listeners: PLAINTEXT://0.0.0.0:9092\nadvertised.listeners: PLAINTEXT://0.0.0.0:9092", []string{"f.yaml:2: advertised.listeners: PLAINTEXT://0.0.0.0:9092 cannot be dialled"}},
		{"advertised name", "advertised.listeners: OUTSIDE://h:1", []string{"f.yaml:1: advertised.listeners: OUTSIDE is not among the listeners"}},
		{"TLS", "listeners: SSL://h:1", []string{"f.yaml:1: listeners: SSL speaks SSL, and only PLAINTEXT is served yet"}},
		{"unmapped listener", "listeners: FRONT://h:1", []string{"add listener.security.protocol.map: FRONT:PLAINTEXT"}},
		{"min ISR", "min.insync.replicas: 4", []string{"f.yaml:1: min.insync.replicas: 4 is more than default.replication.factor (3)"}},
		{"request above memory", "memory: 100MiB\nsocket.request.max.bytes: 50MiB", []string{"f.yaml:2: socket.request.max.bytes: 52428800 is more than a fifth of memory (100MiB)"}},
		{"store without plugin", "storage:\n  stores:\n    a:\n      config: {}", []string{"f.yaml:3: storage.stores: store a names no plugin"}},
		{"store's unknown key", "storage:\n  stores:\n    a:\n      plugin: x\n      dir: /d", []string{"f.yaml:5: storage.stores: store a has the unknown key \"dir\""}},
		{"default store", "storage: {default: b, stores: {a: {plugin: x}}}", []string{`f.yaml:1: storage.default: "b" is not among the stores (a)`}},
		{"checksum", "plugins: {checksums: {x: abc}}", []string{"that of x is not 64 hexadecimal digits"}},
		{"security dropped", "ssl.keystore.location: /x", []string{"f.yaml:1: ssl.keystore.location cannot be used: TLS and SASL are not served yet"}},
		{"too many offsets partitions", "offsets.topic.num.partitions: 10001", []string{"f.yaml:1: offsets.topic.num.partitions: 10001 is more than"}},
		{"sessions", "group.min.session.timeout.ms: 10s\ngroup.max.session.timeout.ms: 5s", []string{"f.yaml:2: group.max.session.timeout.ms: 5000 is less than group.min.session.timeout.ms (10000)"}},
		{"no retention", "offsets.retention.minutes: 0", []string{"f.yaml:1: offsets.retention.minutes: 0s is too little"}},
		{"retention", "offsets.retention.minutes: a week", []string{`f.yaml:1: offsets.retention.minutes: "a week" is not a duration`}},
		{"negative retention", "offsets.retention.minutes: -1", []string{`f.yaml:1: offsets.retention.minutes: "-1" is negative`}},
		{"offsets' codec", "offsets.topic.compression.codec: 5", []string{"f.yaml:1: offsets.topic.compression.codec: 5 is none of 0 (none)"}},
		{"offsets' segments", "offsets.topic.segment.bytes: 1", []string{"f.yaml:1: offsets.topic.segment.bytes: it cannot be 1: it must be"}},
		{"seeds", "transport.config: {listen: x}\ncluster.seeds: [nowhere]", []string{`f.yaml:2: cluster.seeds: "nowhere" is not host:port`}},
		{"seeds without a transport", "cluster.seeds: [h:1]", []string{"f.yaml:1: cluster.seeds: other brokers are named, and transport.config does not say"}},
		{"voters", "controller.quorum.target: 4", []string{"f.yaml:1: controller.quorum.target: 4 stand no more deaths than 3"}},
		{"no voters", "controller.quorum.target: 0", []string{"f.yaml:1: controller.quorum.target: 0 is out of range"}},
		{"a short lease", "broker.session.timeout.ms: 300ms", []string{"f.yaml:1: broker.session.timeout.ms: 300 is less than two of broker.heartbeat.interval.ms (200)"}},
		{"no heartbeats", "broker.heartbeat.interval.ms: 0", []string{"f.yaml:1: broker.heartbeat.interval.ms: 0 is too little"}},
		{"no lag", "replica.lag.time.max.ms: 0", []string{"f.yaml:1: replica.lag.time.max.ms: 0 is too little"}},
		{"data elsewhere", "log.dirs: /x", []string{"log.dirs cannot be used: say `data: DIR`"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Load(Sources{File: "f.yaml", Content: []byte(tc.yaml)})
			if err == nil {
				t.Fatal("no error")
			}
			rest := err.Error()
			for _, want := range tc.want {
				_, after, ok := strings.Cut(rest, want)
				if !ok {
					t.Fatalf("error\n%s\nlacks (or has it earlier)\n%s", err, want)
				}
				rest = after
			}
		})
	}
}

// A store says the same with dots, nested, and in any mixture of both.
func TestDottedStores(t *testing.T) {
	nested, err := Load(Sources{File: "f.yaml", Content: []byte("storage:\n  stores:\n    main: {plugin: x, config: {path: /p, n: 5, a.b: 1}}\n    other: {plugin: y}\n")})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"storage.stores.main.plugin: x\nstorage.stores.main.config: {path: /p, n: 5, a.b: 1}\nstorage.stores.other.plugin: y\n",
		"storage.stores.main: {plugin: x, config.path: /p, config.n: 5, config.a.b: 1}\nstorage.stores.other: {plugin: y}\n",
		"storage:\n  stores:\n    main.plugin: x\n    main.config.path: /p\n    main: {config: {n: 5, a.b: 1}}\n    other.plugin: y\n",
	} {
		dotted, err := Load(Sources{File: "f.yaml", Content: []byte(text)})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(nested.Storage, dotted.Storage); diff != "" {
			t.Errorf("%s is another (-nested +dotted):\n%s", text, diff)
		}
	}
}

func TestCarriers(t *testing.T) {
	c, err := Load(Sources{File: "f.yaml", Content: []byte("storage.stores:\n  main: {plugin: x, carrier: grpc}\n  a.plugin: x\n  a.carrier: socket\n  b: {plugin: x}\n")})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]Carrier{"main": CarrierGRPC, "a": CarrierSocket, "b": CarrierAuto} {
		if got := c.Storage.Stores[name].Carrier; got != want {
			t.Errorf("store %s has the carrier %q; want %q", name, got, want)
		}
	}
	shown := storesField{&c.Storage.Stores}.format()
	again := map[string]Store{}
	if err := (storesField{&again}).parse(shown); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c.Storage.Stores, again); diff != "" {
		t.Errorf("what is shown is read as another (-was +is):\n%s", diff)
	}
	c.Storage.Stores["b"] = Store{Plugin: "x", Carrier: "pigeon"}
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "pigeon") {
		t.Errorf("a carrier that there is none of: %v", err)
	}
}

// -1 is never, as Kafka has it.
func TestNeverIdle(t *testing.T) {
	l, err := Load(Sources{File: "f.yaml", Content: []byte("connections.max.idle.ms: -1")})
	if err != nil || l.Server.IdleMax >= 0 {
		t.Errorf("idle max %s, %v", l.Server.IdleMax, err)
	}
}

// A transport is used where something is said of it.
func TestTransportIsUsed(t *testing.T) {
	for yaml, want := range map[string]bool{
		"node.id: 1": false,
		"transport: {plugin: transport-tcp, config: {}}":                                false,
		"transport.config: {listen: \"127.0.0.1:0\"}":                                   true,
		"transport.plugin: transport-other":                                             true,
		"transport.plugin: transport-other\ncluster.seeds: [whatever it calls a place]": true,
	} {
		l, err := Load(Sources{File: "f.yaml", Content: []byte(yaml)})
		if err != nil || l.Transport.Used() != want {
			t.Errorf("%s: used %t, %v; want %t", yaml, l.Transport.Used(), err, want)
		}
	}
}

func TestIgnoredKafkaKeys(t *testing.T) {
	l, err := Load(Sources{File: "f.yaml", Content: []byte("num.io.threads: 8\nzookeeper.connect: z:2181\nlog:\n  cleaner.threads: 1\nlog.preallocate: true")})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"f.yaml:1: num.io.threads has no effect", "f.yaml:2: zookeeper.connect has no effect", "f.yaml:4: log.cleaner.threads has no effect", "f.yaml:5: log.preallocate has no effect"}
	if len(l.Warnings) != len(want) {
		t.Fatalf("warnings %q", l.Warnings)
	}
	for i := range want {
		if !strings.HasPrefix(l.Warnings[i], want[i]) {
			t.Errorf("warning %q, want %q...", l.Warnings[i], want[i])
		}
	}
	for _, k := range kafkaKeys() {
		for _, s := range settings() {
			if k.name == s.name {
				t.Errorf("%s is a setting and is said to be foreign", k.name)
			}
		}
	}
}

func TestLayers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "b.yaml")
	if err := os.WriteFile(file, []byte("node.id: 2\nbroker.rack: file\nlog: {level: warn, retention.hours: 2}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Load(Sources{
		File:        file,
		Environment: []string{"BROKERD_NODE_ID=3", "BROKERD_LOG_LEVEL=debug", "BROKERD_FLUSH=", "PATH=/bin", "BROKERD_SERVICE_HOST=10.0.0.1", "BROKERD_NOD_ID=7"},
		Overrides:   []Override{{Flag: "--node-id", Name: "node.id", Value: "4"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if l.NodeID != 4 || l.Rack != "file" || l.Log.Level != "debug" || l.Topics.number("log.retention.ms") != 2*3600*1000 || l.Flush != FlushReplicated {
		t.Errorf("got %+v", l.Config)
	}
	origins := map[string]string{
		"node.id":          "flag --node-id",
		"broker.rack":      file + ":2",
		"log.level":        "env BROKERD_LOG_LEVEL",
		"log.retention.ms": file + ":3 log.retention.hours",
		"flush":            "default",
	}
	for _, v := range l.Values {
		if want, ok := origins[v.Name]; ok && v.Origin != want {
			t.Errorf("%s: origin %q, want %q", v.Name, v.Origin, want)
		}
	}
	if len(l.Warnings) != 1 || l.Warnings[0] != "env BROKERD_NOD_ID is no setting and has no effect; did you mean BROKERD_NODE_ID?" {
		t.Errorf("warnings %q", l.Warnings)
	}
}

func TestFinerUnitWins(t *testing.T) {
	for _, tc := range []struct {
		yaml string
		want time.Duration
	}{
		{"log.retention.hours: 1", time.Hour},
		{"log.retention.hours: 1\nlog.retention.minutes: 2", 2 * time.Minute},
		{"log.retention.hours: 1\nlog.retention.minutes: 2\nlog.retention.ms: 3", 3 * time.Millisecond},
		{"log.retention.hours: -1", -time.Millisecond},
		{"log.retention.ms: 1.5h", 90 * time.Minute},
		{"log.retention.ms: 7d", 168 * time.Hour},
	} {
		l, err := Load(Sources{File: "f.yaml", Content: []byte(tc.yaml)})
		if err != nil || l.Topics.number("log.retention.ms") != tc.want.Milliseconds() {
			t.Errorf("%q: %v, %v; want %v", tc.yaml, l.Topics.Properties["log.retention.ms"], err, tc.want)
		}
	}
}

func TestMistakesOutsideTheFile(t *testing.T) {
	_, err := Load(Sources{
		Environment: []string{"BROKERD_MEMORY=x"},
		Overrides:   []Override{{"--set", "nod.id", "1"}, {"--port", "node.id", "-5"}},
	})
	for _, want := range []string{`flag --set: unknown key "nod.id"; did you mean "node.id"?`, `env BROKERD_MEMORY: memory: "x" is not a size`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	_, err = Load(Sources{Overrides: []Override{{"--node", "node.id", "-1"}}})
	if err == nil || err.Error() != `flag --node: node.id: -1 is negative; a node's number is 0 or more` {
		t.Errorf("error %v", err)
	}
	if _, err = Load(Sources{File: "/nowhere/b.yaml"}); err == nil || !strings.Contains(err.Error(), "/nowhere/b.yaml") {
		t.Errorf("error %v", err)
	}
}

func TestEnvironmentNamesAreUnique(t *testing.T) {
	seen := make(map[string]string)
	for _, s := range settings() {
		for _, name := range append([]string{s.name}, coarserNames(s)...) {
			env := envName(name)
			if other, ok := seen[env]; ok {
				t.Errorf("%s and %s are both %s", name, other, env)
			}
			if injected(env) {
				t.Errorf("%s looks like a variable of an orchestrator", env)
			}
			seen[env] = name
		}
		if s.about == "" {
			t.Errorf("%s is not explained", s.name)
		}
	}
}

func coarserNames(s setting) []string {
	var out []string
	for _, c := range s.coarser {
		out = append(out, c.name)
	}
	return out
}

func TestStoresKeepTheirCase(t *testing.T) {
	const file = "storage:\n  default: hot\n  stores:\n    hot:\n      plugin: storage-x\n      config:\n        Bucket: My-Bucket\n        nested: {Deep: [1, 2.5, true, \"x\"]}\n        big: 9007199254740993\n"
	l, err := Load(Sources{File: "f.yaml", Content: []byte(file)})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"Bucket":"My-Bucket","big":9007199254740993,"nested":{"Deep":[1,2.5,true,"x"]}}`
	if got := string(l.Storage.Stores["hot"].Config); got != want {
		t.Errorf("config %s, want %s", got, want)
	}
	resolved, err := l.ResolveReferences(l.Storage.Stores["hot"].Config)
	if err != nil || string(resolved) != want {
		t.Errorf("resolved %s, %v", resolved, err)
	}
	if l, err = Load(Sources{Environment: []string{`BROKERD_STORAGE_STORES={main: {plugin: y, config: {A: b}}}`}}); err != nil || string(l.Storage.Stores["main"].Config) != `{"A":"b"}` {
		t.Errorf("from the environment: %+v, %v", l.Storage, err)
	}
}

func TestSecretsAreMasked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TEST_SECRET", "from-env")
	const section = `{main: {plugin: x, config: {secretKey: "plain", pin: {password: 1234}, token: "${env:TEST_SECRET}", apiKey: "${file:FILE}", dir: "${data}/x"}}}`
	l, err := Load(Sources{Overrides: []Override{{"--set", "storage.stores", strings.ReplaceAll(section, "FILE", file)}}})
	if err != nil {
		t.Fatal(err)
	}
	var shown string
	for _, v := range l.Values {
		if v.Name == "storage.stores" {
			shown = v.Value
		}
	}
	for _, secret := range []string{"plain", "1234", "from-env", "from-file"} {
		if strings.Contains(shown, secret) {
			t.Errorf("%s is shown in %s", secret, shown)
		}
	}
	if !strings.Contains(shown, "${env:TEST_SECRET}") {
		t.Errorf("the reference is not shown in %s", shown)
	}
	got, err := l.ResolveReferences(l.Storage.Stores["main"].Config)
	want := `{"apiKey":"from-file","dir":"./data/x","pin":{"password":1234},"secretKey":"plain","token":"from-env"}`
	if err != nil || string(got) != want {
		t.Errorf("resolved %s, %v; want %s", got, err, want)
	}
	if _, err := l.ResolveReferences([]byte(`{"token":"${env:TEST_NOT_SET}"}`)); err == nil || !strings.Contains(err.Error(), "TEST_NOT_SET") {
		t.Errorf("error %v", err)
	}
}

func TestTopicDefaultsAreWhatWasSaid(t *testing.T) {
	l, err := Load(Sources{File: "f.yaml", Content: []byte("log.retention.hours: 1\nlog.segment.bytes: 2MiB\nnum.partitions: 3\nlog.flush.interval.ms: 5s")})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"log.retention.ms": "3600000", "log.segment.bytes": "2097152", "log.flush.interval.ms": "5000"}
	if diff := cmp.Diff(want, l.TopicDefaults()); diff != "" {
		t.Error(diff)
	}
}

func TestLargestRequestFitsMemory(t *testing.T) {
	for memory, want := range map[string]int64{"256MiB": 256 << 20 / RequestMemoryShare, "512MiB": 100 << 20, "16MiB": 16 << 20 / RequestMemoryShare} {
		l, err := Load(Sources{Overrides: []Override{{"--set", "memory", memory}}})
		if err != nil || l.Server.RequestBytesMax != want {
			t.Errorf("memory %s: largest request %d, %v; want %d", memory, l.Server.RequestBytesMax, err, want)
		}
	}
}
