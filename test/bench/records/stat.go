package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// percentile is the value that so many of a hundred are at most: the nearest rank. It
// sorts what it is given.
func percentile(v []time.Duration, p float64) time.Duration {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	const rounding = 1e-9 // 99.9 in a hundred of 1,000 are 999, not a little more
	rank := int(math.Ceil(p*float64(len(v))/100 - rounding))
	return v[min(max(rank, 1), len(v))-1]
}

// spread is the median of some rounds, the least and the most.
type spread struct{ median, least, most float64 }

func spreadOf(v []float64) spread {
	if len(v) == 0 {
		return spread{math.NaN(), math.NaN(), math.NaN()}
	}
	s := slices.Sorted(slices.Values(v))
	median := s[len(s)/2]
	if len(s)%2 == 0 {
		median = (s[len(s)/2-1] + median) / 2
	}
	return spread{median, s[0], s[len(s)-1]}
}

// ratios are those of each round's value to the one beside it.
func ratios(a, b []float64) []float64 {
	var r []float64
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			r = append(r, a[i]/b[i])
		}
	}
	return r
}

func (s spread) text(form func(float64) string) string {
	if math.IsNaN(s.median) {
		return "none"
	}
	if s.least == s.most {
		return form(s.median)
	}
	return fmt.Sprintf("%s (%s to %s)", form(s.median), form(s.least), form(s.most))
}

// digits has three digits that count, and its thousands apart.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1000:
		return thousands(int64(math.Round(v)))
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.1 || a == 0:
		return strconv.FormatFloat(v, 'f', 2, 64)
	default:
		return strconv.FormatFloat(v, 'f', 3, 64)
	}
}

func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func ratioText(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
