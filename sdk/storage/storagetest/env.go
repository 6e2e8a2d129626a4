package storagetest

type env struct{}
