package memory

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The program's pages go, and it goes on.
func TestForgetProgram(t *testing.T) {
	before := fileBytes(t)
	if err := ForgetProgram(); err != nil {
		t.Fatal(err)
	}
	after := fileBytes(t)
	if after > before*3/4 {
		t.Errorf("%d KiB of files were in memory, %d are", before>>10, after>>10)
	}
	if !regexp.MustCompile(`^(a|b)*c$`).MatchString("ababc") {
		t.Error("the program does not work any more")
	}
}

// fileBytes is what is in this process's memory of files.
func fileBytes(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "RssFile:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("no RssFile in /proc")
	return 0
}

// Mappings of others, those that may be written, and those of which a page is not the
// file's any more are left alone.
func TestUnchangedMappings(t *testing.T) {
	entry := func(head string, anonymous int) string {
		return head + "\nSize:               1024 kB\nRss:                 512 kB\nAnonymous:           " +
			strconv.Itoa(anonymous) + " kB\nAnonHugePages:         0 kB\nVmFlags: rd ex mr mw me\n"
	}
	smaps := entry("00400000-00500000 r-xp 00000000 fe:00 12                                 /usr/bin/brokerd", 0) +
		entry("00500000-00600000 r--p 00100000 fe:00 12                                 /usr/bin/brokerd", 0) +
		entry("00600000-00700000 r--p 00200000 fe:00 12                                 /usr/bin/brokerd", 4) + // relocated
		entry("00700000-00800000 rw-p 00300000 fe:00 12                                 /usr/bin/brokerd", 0) +
		entry("00800000-00900000 r--s 00300000 fe:00 12                                 /usr/bin/brokerd", 0) +
		entry("00900000-00a00000 r--p 00300000 fe:00 13                                 /usr/bin/brokerd-other", 0) +
		entry("00a00000-00b00000 r--p 00000000 00:00 0 ", 0)
	got, err := unchanged(strings.NewReader(smaps), "/usr/bin/brokerd")
	if want := []mapping{{0x400000, 0x500000}, {0x500000, 0x600000}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%#x, %v; want %#x", got, err, want)
	}
	if _, err := unchanged(strings.NewReader("4-x r-xp 0 0 0 /p\n"), "/p"); err == nil {
		t.Error("a range that is none went unnoticed")
	}
}
