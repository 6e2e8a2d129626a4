//go:build race

package replica

// raceEnabled: the detector makes pools forget.
const raceEnabled = true
