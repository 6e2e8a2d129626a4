package ports

import (
	"slices"
	"testing"
)

// Each is there once, can be listened on, and is not a kernel's to give away.
func TestPorts(t *testing.T) {
	free, err := Free(50)
	if err != nil {
		t.Fatal(err)
	}
	row, err := InRow(5)
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(free, row)
	slices.Sort(all)
	if len(slices.Compact(slices.Clone(all))) != 55 || len(row) != 5 || row[4] != row[0]+4 {
		t.Errorf("%v, and in a row %v", free, row)
	}
	for _, port := range all {
		l, err := listen(port)
		if err != nil || port < portMin || port >= portMax {
			t.Errorf("%d: %v", port, err)
			continue
		}
		l.Close()
	}
}

// None is found twice, by whoever asks.
func TestNoneTwice(t *testing.T) {
	const askers, each = 8, 100
	answers := make(chan []int, 2*askers)
	for range askers {
		go func() {
			free, err := Free(each)
			if err != nil {
				t.Error(err)
			}
			answers <- free
			row, err := InRow(3)
			if err != nil {
				t.Error(err)
			}
			answers <- row
		}()
	}
	told := map[int]bool{}
	for range 2 * askers {
		for _, port := range <-answers {
			if told[port] {
				t.Errorf("%d is found twice", port)
			}
			told[port] = true
		}
	}
	if len(told) != askers*(each+3) {
		t.Errorf("%d ports were found", len(told))
	}
}
