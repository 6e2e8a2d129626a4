package clients

// pythonClients are those of drivers/python: one program, whose first word chooses
// the client.
func pythonClients() []client {
	return []client{
		{name: "confluent-kafka-python", install: pythonDriver("confluent-kafka")},
		{name: "kafka-python", install: pythonDriver("kafka-python")},
		{name: "aiokafka", install: pythonDriver("aiokafka"), lacks: map[feature]string{
			cooperative: "its assignors are range, roundrobin and an eager sticky one",
		}},
	}
}

func pythonDriver(name string) func() (program, error) {
	return func() (program, error) {
		interpreter, err := tool("python")
		return program{argv: []string{interpreter, "drivers/python/driver.py", name}, env: []string{"PYTHONDONTWRITEBYTECODE=1"}}, err
	}
}
