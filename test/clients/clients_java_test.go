package clients

// javaClients is Apache Kafka's own client, which has everything.
func javaClients() []client {
	return []client{{name: "java", install: javaProgram("Driver")}}
}

// javaProgram is a class of drivers/java, or of Kafka's jars.
func javaProgram(class string) func() (program, error) {
	return func() (program, error) {
		run, err := tool("java-drivers")
		return program{argv: []string{run, class}}, err
	}
}
