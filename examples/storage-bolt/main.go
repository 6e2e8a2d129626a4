package main

import (
	"fmt"
	"os"

	"github.com/brokerd/brokerd/sdk/plugin"
)

func main() {
	if err := plugin.ServeStorage(newProvider(deviceRoom)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
