package clients

func nodeClients() []client { return nil }
