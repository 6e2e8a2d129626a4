package group

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

const hour = int64(time.Hour / time.Millisecond)

// TestCalendar: a leap of the wall clock ages nothing that was there before it.
func TestCalendar(t *testing.T) {
	const year = 365 * 24 * hour
	tests := []struct {
		name   string
		newest int64 // of the log, in hours before the start
		// at each look, in hours: lived by the monotonic clock, gone by the wall clock
		looks [][2]int64
		at    int64 // the timestamp, in hours from the start
		age   int64 // hours
	}{
		{"both clocks go together", 0, [][2]int64{{1, 1}, {1, 1}}, 0, 2},
		{"set forward by a year", 0, [][2]int64{{1, 1}, {1, 1 + year/hour}}, 0, 2},
		{"after that", 0, [][2]int64{{1, 1 + year/hour}, {1, 1}}, 1 + year/hour, 1},
		{"the machine slept", 0, [][2]int64{{1, 1}, {0, 200}}, 0, 1},
		{"set back", 0, [][2]int64{{10, 10}, {1, -5}}, 0, 5},
		{"set back and forward again", 0, [][2]int64{{10, 10}, {1, -5}, {1, 7}}, 0, 6},
		{"a whole retention later", 0, [][2]int64{{1, 101}, {100, 100}}, 0, 201},
		{"nobody was there before", 50, [][2]int64{{1, 1}}, -60, 11},
		{"nobody was there, and what is new", 50, [][2]int64{{1, 1}}, 0, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			start := storyBegins.UnixMilli()
			var c calendar
			c.start(storyBegins, start-tt.newest*hour)
			wall := start
			for _, look := range tt.looks {
				wall += look[1] * hour
				c.pass(time.Duration(look[0])*time.Hour, wall, 100*time.Hour)
			}
			if age := c.age(start + tt.at*hour); age != tt.age*hour {
				t.Errorf("the age is %dh, want %dh", age/hour, tt.age)
			}
		})
	}
}

// TestNoAgeIsMoreThanLived: whatever the wall clock does, nothing that was written since
// the start is older than the monotonic clock says, but for the slack of each look.
func TestNoAgeIsMoreThanLived(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c calendar
		c.start(storyBegins, 0)
		wall, lived := storyBegins.UnixMilli(), time.Duration(0)
		type stamp struct {
			at   int64
			when time.Duration
		}
		var stamps []stamp
		looks := rapid.IntRange(1, 30).Draw(t, "looks")
		for range looks {
			stamps = append(stamps, stamp{wall, lived})
			by := time.Duration(rapid.IntRange(0, 600).Draw(t, "lived")) * time.Second
			lived += by
			wall += by.Milliseconds() + int64(rapid.SampledFrom([]int{0, 0, 0, 30_000, -30_000, 3_600_000, -3_600_000, 1 << 40}).Draw(t, "leap"))
			c.pass(by, wall, 1000*time.Hour)
			for _, s := range stamps {
				most := (lived - s.when + time.Duration(looks)*slack).Milliseconds()
				if age := c.age(s.at); age > most {
					t.Fatalf("what was written %v ago is %dms old", lived-s.when, age)
				}
			}
		}
	})
}
