//go:build race

package cluster

// seedsByDefault: the detector makes a seed cost many times as much.
const seedsByDefault = 6
