//go:build !race

package cluster

// seedsByDefault is how many seeds TestClusterSeeds runs.
const seedsByDefault = 150
