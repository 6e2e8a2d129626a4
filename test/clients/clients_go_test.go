package clients

// goClients are those of drivers/go: one program, whose first word chooses the
// client.
func goClients() []client {
	return []client{
		{name: "franz-go", install: goDriver("franz-go")},
		// At the newest version of the protocol that it knows, and at the one that it speaks
		// when it is told none, some years older.
		{name: "sarama", install: goDriver("sarama")},
		{name: "sarama-default", install: goDriver("sarama-default")},
		{name: "kafka-go", install: goDriver("kafka-go"), lacks: map[feature]string{
			idempotent:  "kafka-go's Writer has no idempotence",
			cooperative: "kafka-go's group balancers are eager ones",
			static:      "kafka-go's ConsumerGroupConfig has no instance ID",
		}},
		{name: "confluent-kafka-go", install: goDriver("confluent-kafka-go")},
		{name: "kcat", install: kcatDriver, lacks: map[feature]string{
			headers:    "kcat sends the same headers with all records",
			timestamps: "kcat cannot set a record's timestamp",
			commits:    "kcat commits by itself, and does not say so",
			deletion:   "kcat lists and queries, and changes nothing",
		}},
	}
}

// goDriver builds the driver, which needs a C compiler for librdkafka, and its modules.
func goDriver(name string) func() (program, error) {
	return func() (program, error) {
		if _, err := tool("go-drivers"); err != nil {
			return program{}, err
		}
		path, err := suite.godriver()
		return program{argv: []string{path, name}}, err
	}
}

func kcatDriver() (program, error) {
	if _, err := tool("kcat"); err != nil {
		return program{}, err
	}
	return goDriver("kcat")()
}
