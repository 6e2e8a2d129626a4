//go:build race

package server

// raceEnabled: the detector makes pools forget.
const raceEnabled = true
