//go:build race

package api

// raceEnabled: the race detector is on.
const raceEnabled = true
