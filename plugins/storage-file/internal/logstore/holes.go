package logstore

import "slices"

// Holes are ranges of offsets whose batches were durable and are damaged or
// missing. They are kept in the checkpoint, so that a reader meets an error
// there, not silence. They are sorted and don't touch each other.

// addHole returns holes with one more.
func addHole(holes []span, h span) []span {
	merged := make([]span, 0, len(holes)+1)
	for _, o := range holes {
		if o.To < h.From || o.From > h.To {
			merged = append(merged, o)
			continue
		}
		h = span{min(h.From, o.From), max(h.To, o.To)}
	}
	merged = append(merged, h)
	slices.SortFunc(merged, func(a, b span) int { return int(min(1, max(-1, a.From-b.From))) })
	return merged
}

// clipHoles returns what of the holes lies in [from, to).
func clipHoles(holes []span, from, to int64) []span {
	var clipped []span
	for _, h := range holes {
		h = span{max(h.From, from), min(h.To, to)}
		if h.From < h.To {
			clipped = append(clipped, h)
		}
	}
	return clipped
}

// holeIn returns the first hole that has an offset in [from, to).
func holeIn(holes []span, from, to int64) (span, bool) {
	for _, h := range holes {
		if h.From < to && h.To > from {
			return h, true
		}
	}
	return span{}, false
}
