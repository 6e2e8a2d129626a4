package clients

// nodeClients are those of drivers/node: one program, whose first word chooses the
// client.
func nodeClients() []client {
	return []client{
		{name: "kafkajs", install: nodeDriver("kafkajs"), lacks: map[feature]string{
			cooperative: "its only assigner is round-robin, which is eager",
			static:      "its consumer has no setting for an instance's name",
		}},
		{name: "platformatic-kafka", install: nodeDriver("platformatic")},
		{name: "confluent-kafka-javascript", install: nodeDriver("confluent")},
	}
}

func nodeDriver(name string) func() (program, error) {
	return func() (program, error) {
		interpreter, err := tool("node")
		return program{argv: []string{interpreter, "drivers/node/driver.mjs", name}}, err
	}
}
