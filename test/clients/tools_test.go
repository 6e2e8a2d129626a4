package clients

import (
	"testing"
)

// kafkaTool is one of Kafka's command-line tools.
type kafkaTool struct {
	name  string
	cases []toolCase
}

// toolCase is a case of a tool.
type toolCase struct {
	name string
	run  func(r *toolRun)
}

// kafkaTools are all of them. Left out is what needs transactions, share groups or an
// authorizer: kafka-transactions but for describe-producers, kafka-share-groups,
// kafka-acls but for its refusal.
func kafkaTools() []kafkaTool {
	return []kafkaTool{
		{"kafka-topics", []toolCase{
			{"create, list, describe", topicsCreate},
			{"alter", topicsAlter},
			{"delete", topicsDelete},
		}},
		{"kafka-configs", []toolCase{
			{"topics", configsTopic},
			{"brokers", configsBrokers},
			{"users, clients", configsNobody},
		}},
		{"kafka-console-producer", []toolCase{{"keys, headers, codecs", consoleProducer}}},
		{"kafka-console-consumer", []toolCase{
			{"group", consoleConsumerGroup},
			{"pattern", consoleConsumerPattern},
			{"offsets topic", consoleConsumerOffsets},
		}},
		{"kafka-consumer-groups", []toolCase{
			{"list", groupsList},
			{"describe", groupsDescribe},
			{"reset-offsets", groupsReset},
			{"reset-offsets by time", groupsResetTime},
			{"reset-offsets by file", groupsResetFile},
			{"delete-offsets", groupsDeleteOffsets},
			{"delete", groupsDelete},
		}},
		{"kafka-verifiable-producer", []toolCase{{"produce", verifiableProduce}}},
		{"kafka-verifiable-consumer", []toolCase{{"group of two", verifiableGroup}}},
		{"kafka-get-offsets", []toolCase{{"all times", getOffsets}}},
		{"kafka-delete-records", []toolCase{{"delete", deleteRecords}}},
		{"kafka-log-dirs", []toolCase{{"describe", logDirs}}},
		{"kafka-producer-perf-test", []toolCase{{"acks=all", producerPerf}}},
		{"kafka-consumer-perf-test", []toolCase{{"group", consumerPerf}}},
		{"kafka-e2e-latency", []toolCase{{"acks=all", endToEndLatency}}},
		{"kafka-broker-api-versions", []toolCase{{"usable", apiVersions}}},
		{"kafka-cluster", []toolCase{
			{"cluster-id, list-endpoints", clusterID},
			{"unregister", clusterUnregister},
		}},
		{"kafka-transactions", []toolCase{{"describe-producers", describeProducers}}},
		{"kafka-metadata-quorum", []toolCase{{"describe", describeQuorum}}},
		{"kafka-leader-election", []toolCase{{"preferred", leaderElection}}},
		{"kafka-reassign-partitions", []toolCase{
			{"list, generate", reassignList},
			{"execute, verify", reassignMove},
		}},
		{"kafka-acls", []toolCase{{"refused", aclsRefused}}},
	}
}

// TestTools puts Kafka's command-line tools through their cases.
func TestTools(t *testing.T) {
	t.Parallel()
	suite.client(t, "kafka-tools", func(t *testing.T) {
		box, err := openToolbox()
		if err == nil {
			defer func() {
				if err := box.close(); err != nil {
					t.Errorf("Kafka's tools: %v\n%s", err, box.stderr.String())
				}
			}()
		}
		version := ""
		if err == nil {
			version, err = javaVersion(t)
		}
		for _, tool := range kafkaTools() {
			t.Run(tool.name, func(t *testing.T) {
				for _, k := range tool.cases {
					suite.runCase(t, tool.name, version, k.name, func(r *run) {
						if err != nil {
							r.Fatalf("cannot be had: %v", err)
						}
						k.run(&toolRun{run: r, box: box})
					})
				}
			})
		}
	})
}

// javaVersion is that of Kafka's jars.
func javaVersion(t *testing.T) (string, error) {
	p, err := javaProgram("Driver")()
	if err != nil {
		return "", err
	}
	return askVersion(t.Context(), p)
}
