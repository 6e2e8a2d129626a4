package model

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestTopicIDsAreReadAsTheyAreWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var id TopicID
		copy(id[:], rapid.SliceOfN(rapid.Byte(), len(id), len(id)).Draw(t, "id"))
		got, err := ParseTopicID(id.String())
		if err != nil || got != id {
			t.Fatalf("%s is read as %s, %v", id, got, err)
		}
	})
}

func TestParseTopicIDRefuses(t *testing.T) {
	for _, s := range []string{
		"", "A", strings.Repeat("A", 21), strings.Repeat("A", 23), strings.Repeat("A", 22) + "==",
		strings.Repeat("+", 22), strings.Repeat(" ", 22), "00000000-0000-0000-0000-000000000000",
	} {
		if id, err := ParseTopicID(s); err == nil || !id.IsZero() {
			t.Errorf("%q is read as %s", s, id)
		}
	}
}

func TestText(t *testing.T) {
	for got, want := range map[string]string{
		Partition{Topic: TopicID{1}, Index: 7}.String(): "AQAAAAAAAAAAAAAAAAAAAA-7",
		DirectoryID{0xd1, 15: 2}.String():               "d1000000000000000000000000000002",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
