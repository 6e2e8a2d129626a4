// Package configs carries the configuration files that are published with the
// broker, so that the program can print them and tests can load them. It owns
// the files and nothing else.
package configs

import _ "embed"

// Dev is dev.yaml: every setting with its default, commented.
//
//go:embed dev.yaml
var Dev []byte

// Server is server.yaml: a start for a broker that others depend on.
//
//go:embed server.yaml
var Server []byte
