package main

import (
	"fmt"
	"os"

	transporttcp "github.com/brokerd/brokerd/plugins/transport-tcp"
)

func main() {
	if err := transporttcp.Serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
