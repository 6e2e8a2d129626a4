// Package configs carries the configuration files that are published with the
// broker, so that the program can print them and tests can load them. It owns
// the files and nothing else.
//
// It never reads a setting: core/config does, and tests there that dev.yaml says
// what the defaults are.
package configs
