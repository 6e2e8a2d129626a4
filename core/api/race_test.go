//go:build race

package api

// raceEnabled: the detector makes pools forget.
const raceEnabled = true
