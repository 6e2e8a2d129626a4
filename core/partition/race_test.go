//go:build race

package partition

// raceEnabled: the race detector makes everything slow.
const raceEnabled = true
