//go:build race

package memory_test

// raceEnabled: the detector makes pools forget.
const raceEnabled = true
