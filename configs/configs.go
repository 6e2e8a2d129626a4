package configs

import "embed"

// Dev is dev.yaml: every setting with its default, commented.
//
//go:embed dev.yaml
var Dev []byte

// Server is server.yaml: a start for a broker that others depend on.
//
//go:embed server.yaml
var Server []byte

// ThreeNodes is three-nodes/broker1.yaml to broker3.yaml: three brokers that are one cluster.
//
//go:embed three-nodes/*.yaml
var ThreeNodes embed.FS
