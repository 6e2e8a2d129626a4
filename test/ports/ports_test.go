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
	slices.Sort(free)
	if len(slices.Compact(free)) != 50 || len(row) != 5 || row[4] != row[0]+4 {
		t.Errorf("%v, and in a row %v", free, row)
	}
	for _, port := range slices.Concat(free, row) {
		l, err := listen(port)
		if err != nil || port < portMin || port >= portMax {
			t.Errorf("%d: %v", port, err)
			continue
		}
		l.Close()
	}
}
