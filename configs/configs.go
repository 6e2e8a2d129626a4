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
