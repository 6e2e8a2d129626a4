package clients

func pythonClients() []client { return nil }
