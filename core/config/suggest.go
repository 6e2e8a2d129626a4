package config

import (
	"slices"
	"strings"

	"github.com/brokerd/brokerd/core/image/topicconfig"
)

// suggest finds the name that was probably meant, or "".
func suggest(name string, names []string) string {
	plain := squash(name)
	for _, n := range names {
		if squash(n) == plain {
			return n
		}
	}
	// What a topic calls it.
	if d, ok := topicconfig.Lookup(strings.ToLower(name)); ok && len(d.Broker) > 0 && slices.Contains(names, d.Broker[0].Name) {
		return d.Broker[0].Name
	}
	best, least := "", max(2, len(name)/4)+1
	for _, n := range names {
		if d := distance(strings.ToLower(name), n); d < least {
			best, least = n, d
		}
	}
	return best
}

// squash forgets case and punctuation: nodeId, NODE_ID and node.id are one.
func squash(s string) string {
	return strings.NewReplacer(".", "", "_", "", "-", "").Replace(strings.ToLower(s))
}

// distance is the number of letters to add, drop, change or swap with their
// neighbour to make one word of the other.
func distance(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		last := before
		before = row
		row = make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(before[j]+1, row[j-1]+1, before[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], last[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
