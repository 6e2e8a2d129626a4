package wire

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The table in the documentation is this package's.
func TestDocumentedVersions(t *testing.T) {
	b, err := os.ReadFile("../../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(line, "|")
		if len(cells) == 6 && strings.Contains(cells[3], " to ") {
			got = append(got, fmt.Sprintf("%s|%s|%s", strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3])))
		}
	}
	apis := APIs()
	if len(got) != len(apis) {
		t.Errorf("docs/wire.md has %d APIs, not %d", len(got), len(apis))
	}
	for i, a := range apis {
		name := map[string]string{
			"InitProducerID": "InitProducerId", "DescribeACLs": "DescribeAcls", "CreateACLs": "CreateAcls", "DeleteACLs": "DeleteAcls",
			"DescribeUserSCRAMCredentials": "DescribeUserScramCredentials",
			"AlterPartitionAssignments":    "AlterPartitionReassignments",
		}[a.Name()]
		if name == "" {
			name = a.Name()
		}
		want := fmt.Sprintf("%s|%d|%d to %d", name, a.Key, a.Serves, a.Max)
		if i >= len(got) || got[i] != want {
			t.Errorf("docs/wire.md lacks the row %s at place %d", want, i+1)
		}
	}
}
