package quorum

import (
	"strings"
	"testing"
)

// What a database's own panics say means nothing to an operator.
func TestDamageIsToldInPlainWords(t *testing.T) {
	var nothing *storedIdentity
	for _, f := range []func() error{
		func() error { panic("assertion failed: page 3 is no leaf") },
		func() error { nothing.Version = 1; return nil },
	} {
		err := survive(f)
		if err == nil || strings.Contains(err.Error(), "assertion") || strings.Contains(err.Error(), "runtime error") || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("told as %v", err)
		}
	}
}
