package main

import (
	"fmt"
	"os"

	storagefile "github.com/brokerd/brokerd/plugins/storage-file"
)

func main() {
	if err := storagefile.Serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
