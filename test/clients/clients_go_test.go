package clients

// goClients are those of drivers/go: one program, whose first word chooses the
// client.
func goClients() []client {
	return []client{
		{name: "franz-go", install: goDriver("franz-go")},
	}
}

func goDriver(name string) func() (program, error) {
	return func() (program, error) {
		path, err := suite.godriver()
		return program{argv: []string{path, name}}, err
	}
}
