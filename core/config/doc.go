// Package config is what an operator may say to a broker: one YAML file, the
// environment and flags, layered in that order over the defaults.
//
// It owns the table of settings (names, meaning, defaults, units), the strict
// reading of the file, the sentences in which mistakes are told, and the record
// of where each value came from. Kafka's own names are used where Kafka has the
// setting; dots and nesting are the same, so that "log.level: debug" and
// "log: {level: debug}" say one thing.
//
// It never opens a socket, starts nothing, and knows no plugin's keys: a
// plugin's section is carried as JSON to the plugin, which is strict about it.
//
// Invariants: no key is dropped in silence (an unknown key is an error with its
// line, a key of Kafka's that has no effect here is a warning with its reason,
// and one whose loss would weaken security is an error: TestFileMistakes,
// TestIgnoredKafkaKeys); every setting has one environment name of its own
// (TestEnvironmentNamesAreUnique); a secret is shown as a reference or not at
// all (TestSecretsAreMasked); the published configs/dev.yaml is the defaults
// (TestDevIsTheDefaults).
package config
