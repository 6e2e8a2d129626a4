package clients

func javaClients() []client { return nil }
