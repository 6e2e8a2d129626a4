package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A member that is not let in says so, once, and not at once.
func TestMemberSaysThatItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := newScreen()
		c := &console{err: errs}
		m := &membership{s: &consuming{group: "billing"}, since: time.Now()}
		tell := func(want int) {
			t.Helper()
			if err := m.tellWait(c); err != nil || strings.Count(errs.String(), "waiting to be a member of group billing") != want {
				t.Errorf("told %q, %v; want it %d times", errs, err, want)
			}
		}
		tell(0)
		time.Sleep(joinNotice)
		tell(1)
		tell(1)
		joined := &membership{s: &consuming{group: "billing"}, since: m.since}
		joined.assigned(nil, true)
		if err := joined.tellWait(c); err != nil {
			t.Error(err)
		}
		tell(1)
	})
}
