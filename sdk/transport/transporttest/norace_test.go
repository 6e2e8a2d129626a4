//go:build !race

package transporttest_test

const raceEnabled = false
