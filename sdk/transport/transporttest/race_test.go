//go:build race

package transporttest_test

// raceEnabled: the detector makes everything slow, and takes memory.
const raceEnabled = true
