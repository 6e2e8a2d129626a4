package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// kafkaVersion is what suites that ask shall believe that the broker is.
const kafkaVersion = "4.4.0"

// nowhere is the address of the SASL listener, as long as there is none: nobody
// answers there.
const nowhere = "127.0.0.1:1"

// suite is one of the suites of others.
type suite struct {
	name string
	// host is the brokers' name as the suite wants it advertised.
	host    string
	brokers int
	// relayed: what the brokers advertise is where the suite's own relays are.
	relayed bool
	// settings of each broker that the suite expects; {n} is the broker's number.
	settings []string
	total    time.Duration // of the whole run
	runner   runner
}

// suites are all of them, in the order in which `all` runs them.
func suites() []suite {
	return []suite{
		// franz-go's ETL tests wait out the first rebalance of many groups.
		{"franz-go", "127.0.0.1", 3, false, nil, 20 * time.Minute, franzGo()},
		// One test compares what is advertised with localhost, another sends a record
		// that no ordinary limit lets in.
		{"kafka-go", "localhost", 3, false, kafkaGoSettings(), 30 * time.Minute, kafkaGo()},
		{"kafka-go-alone", "localhost", 1, false, kafkaGoSettings(), 10 * time.Minute, kafkaGoAlone()},
		{"confluent-kafka-go", "127.0.0.1", 3, false, []string{"num.partitions=4", "broker.rack=RACK{n}"}, 30 * time.Minute, confluent()},
		{"sarama", "127.0.0.1", 5, true, saramaSettings(), 30 * time.Minute, saramaSuite()},
		// -Q: quick; -E: no test that disturbs its own sockets.
		{"librdkafka", "127.0.0.1", 3, false, librdkafkaSettings(), 40 * time.Minute, librdkafka{flags: []string{"-Q", "-E"}}},
		{"librdkafka-more", "127.0.0.1", 3, false, librdkafkaSettings(), 40 * time.Minute, librdkafkaMore()},
	}
}

// librdkafkaMore is the tests of groups at full length, since a quick run leaves out
// most of them, and the test of administration in its pieces, since one that waits for
// a capability would hide those behind it.
func librdkafkaMore() librdkafka {
	return librdkafka{
		tests: "^(0018|0019|0026|0045|0050|0061|0081|0089|0102|0118|0122|0130|0132)_",
		flags: []string{"-E"},
		pieces: librdkafkaPieces{"0081_admin", []string{
			"do_test_unclean_destroy", "do_test_CreateTopics", "do_test_DeleteTopics", "do_test_CreatePartitions",
			"do_test_CreateAcls", "do_test_DescribeAcls", "do_test_DeleteAcls",
			"do_test_AlterConfigs", "do_test_IncrementalAlterConfigs", "do_test_DescribeConfigs", "do_test_DescribeConfigs_groups",
			"do_test_DeleteRecords", "do_test_ListOffsets", "do_test_DescribeTopics", "do_test_DescribeCluster",
			"do_test_ListConsumerGroups", "do_test_DescribeConsumerGroups", "do_test_DescribeConsumerGroups_with_authorized_ops",
			"do_test_DeleteGroups", "do_test_DeleteConsumerGroupOffsets", "do_test_AlterConsumerGroupOffsets",
			"do_test_ListConsumerGroupOffsets", "do_test_UserScramCredentials",
		}},
	}
}

func librdkafkaSettings() []string {
	return []string{"num.partitions=4", "broker.rack=RACK{n}", "log.retention.bytes=1000000000"}
}

// franzGo is the tests of pkg/kgo that talk to a broker.
func franzGo() goSuite {
	return goSuite{
		module: "github.com/twmb/franz-go", version: "v1.22.3", packages: []string{"./pkg/kgo"},
		tests: `^(TestPing|TestIssue1034|TestShareGroup|TestIssue325|TestConsumeRegex|TestIssue337|TestDirectPartitionPurge` +
			`|TestIssue434|TestAddRemovePartitions|TestPauseIssue489|TestPauseIssueOct2023|TestIssue523|TestIssue648|TestIssue810` +
			`|TestIssue865|TestPooling|TestGroupSimple|TestHookPollStart|TestGroupETL|TestClient_Produce|TestIssue769` +
			`|TestIssueProduceSyncManualPartitionNegativeDoesNotPanic|TestIssue831|TestClient_ProduceLargeMessages` +
			`|TestShareGroupETL|TestShareGroupAckOnClose|TestShareGroupOffsetsAdmin|TestTxnEtl|TestSCRAMAuth` +
			`|TestSCRAMAuthBadCredentials|TestOAuth.*)$`,
		stall: 4 * time.Minute,
		prepare: func(_ string, s *session) ([]string, string, error) {
			return []string{
				"KGO_SEEDS=" + s.bootstrap(), "KGO_LOG_LEVEL=none",
				"KGO_TEST_RF=3", "KGO_TEST_RECORDS=50000", // as many as Kafka was measured with
			}, "", nil
		},
	}
}

func kafkaGoSettings() []string {
	return []string{"message.max.bytes=200000000", "socket.request.max.bytes=250000000", "memory=2GiB"}
}

// ofOneBroker are the tests of kafka-go that take the broker that they dial for the only
// one, leader of all and coordinator of every group.
func ofOneBroker() []string {
	return []string{"TestConn", "TestDialer", "TestDialerResolver", "TestDialerTLS"}
}

// kafkaGoAlone is those tests.
func kafkaGoAlone() goSuite {
	g := kafkaGo()
	g.packages, g.tests, g.without = []string{"."}, "^("+strings.Join(ofOneBroker(), "|")+")$", nil
	return g
}

// kafkaGo is all other tests of segmentio/kafka-go. It has its broker's address written in.
func kafkaGo() goSuite {
	return goSuite{
		module: "github.com/segmentio/kafka-go", version: "v0.4.51", packages: []string{"./..."},
		split: []string{"TestReaderConsumerGroup", "TestReader", "TestConn"}, without: ofOneBroker(),
		stall: 2 * time.Minute, readdress: readdressKafkaGo,
		prepare: func(string, *session) ([]string, string, error) {
			// Its authors leave out golang.org/x/net's tests of connections since Kafka 4.0.
			return []string{"KAFKA_VERSION=" + kafkaVersion, "KAFKA_SKIP_NETTEST=1"}, "", nil
		},
	}
}

// readdressKafkaGo writes the address into kafka-go's tests, where localhost:9092 is.
func readdressKafkaGo(dir string, s *session) error {
	at := s.addresses[0]
	port := fmt.Sprint(at.port)
	everywhere := strings.NewReplacer(
		"localhost:9092", at.String(), "127.0.0.1:9092", at.String(),
		"localhost:9093", nowhere, "127.0.0.1:9093", nowhere,
		`Host: "localhost", Port: 9092`, fmt.Sprintf("Host: %q, Port: %s", at.host, port),
		".Port != 9092", ".Port != "+port, "expected 9092 received", "expected "+port+" received",
	)
	// Where no port is written, 9092 is meant.
	bare := strings.NewReplacer(`TCP("localhost")`, fmt.Sprintf("TCP(%q)", at.String()))
	dialed := regexp.MustCompile(`(address:.*)"example\.com(?::9092)?"`)
	return filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		name := filepath.Base(path)
		rel := strings.TrimPrefix(path, dir+"/")
		// Two places test addresses as such, and dial none.
		if err != nil || d.IsDir() || !strings.HasSuffix(name, "_test.go") || name == "address_test.go" || strings.HasPrefix(rel, "protocol/") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text := everywhere.Replace(string(data))
		switch name {
		case "client_test.go", "list_topics_test.go":
			text = bare.Replace(text)
		case "dialer_test.go":
			text = dialed.ReplaceAllString(text, `${1}"example.com:`+port+`"`)
		}
		return os.WriteFile(path, []byte(text), 0o644)
	})
}

// confluent is the tests of confluent-kafka-go, with the librdkafka that it carries
// and the classic group protocol.
func confluent() goSuite {
	return goSuite{
		module: "github.com/confluentinc/confluent-kafka-go/v2", version: "v2.11.1", packages: []string{"./kafka"},
		split: []string{"TestIntegration"}, stall: 2 * time.Minute,
		prepare: func(src string, s *session) ([]string, string, error) {
			if err := s.tool("compiler"); err != nil {
				return nil, "", err
			}
			conf := struct {
				Brokers, BrokersSasl, SaslUsername, SaslPassword, SaslMechanism, TopicName, GroupID string
				PerfMsgCount, PerfMsgSize                                                           int
				Config                                                                              []string
			}{
				Brokers: s.bootstrap(), SaslUsername: "testuser", SaslPassword: "testpass", SaslMechanism: "PLAIN",
				TopicName: "test", GroupID: "testgroup", PerfMsgCount: 100_000, PerfMsgSize: 100,
				Config: []string{"api.version.request=true"},
			}
			data, err := json.Marshal(conf)
			if err != nil {
				return nil, "", err
			}
			env := []string{"TEST_CONSUMER_GROUP_PROTOCOL=classic"}
			return env, "", os.WriteFile(filepath.Join(src, "kafka", "testconf.json"), data, 0o644)
		},
	}
}
