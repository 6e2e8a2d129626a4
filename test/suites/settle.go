package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// standing is what is known of one package's tests after some processes. A process
// may end before its tests: by a panic, or because it was ended when it hung. What
// then counts, and what runs again in another process, is decided here.
type standing struct {
	known results
	// split are tests whose subtests are counted one by one, so that one that kills
	// the process does not take its finished siblings along.
	split []string
}

// settle adds what one process showed, with the tests that it had begun and not ended
// and whether it was ended from outside. It reports whether anything new is known: if
// not, another process would only show the same.
func (s *standing) settle(t *tally, running map[string]time.Duration, killed bool) bool {
	if t.panicked {
		s.keepSplitOpen(t)
	}
	before, explicit := len(s.known), false
	for name, r := range t.ended {
		if _, had := s.known[name]; had {
			continue
		}
		explicit = explicit || r.status == failed
		// A parent that did not end takes its finished subtests along.
		if _, ended := t.ended[root(name)]; ended || s.isSplit(root(name)) {
			s.known[name] = r
		}
	}
	// The test that failed took the others along, which are not to blame: they run
	// again. With no such test, or if the process hung, those that ran are.
	if killed || !explicit {
		blame := failed
		if killed {
			blame = timedOut
		}
		for name, took := range running {
			unit := s.unit(name)
			if _, had := s.known[unit]; !had {
				s.known[unit] = result{blame, took}
			}
		}
	}
	return len(s.known) > before
}

// keepSplitOpen forgets that a split test failed when it failed because one of its
// subtests panicked: the others are yet to run.
func (s *standing) keepSplitOpen(t *tally) {
	for _, name := range s.split {
		for sub, r := range t.ended {
			if _, had := s.known[sub]; !had && r.status == failed && strings.HasPrefix(sub, name+"/") {
				delete(t.ended, name)
			}
		}
	}
}

// finish decides what no process did: tests of the list that never came to their
// turn, and split tests whose last process did not see the failures of the others.
func (s *standing) finish(names []string) {
	for _, name := range names {
		r, had := s.known[name]
		switch {
		case !had:
			s.known[name] = result{status: timedOut}
		case s.isSplit(name) && r.status == passed && s.subtestFailed(name):
			s.known[name] = result{failed, r.took}
		}
	}
}

func (s *standing) subtestFailed(name string) bool {
	for sub, r := range s.known {
		if strings.HasPrefix(sub, name+"/") && (r.status == failed || r.status == timedOut) {
			return true
		}
	}
	return false
}

// left reports whether any test of the list is not known yet.
func (s *standing) left(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { _, had := s.known[name]; return !had })
}

// skip is the pattern of what is known and of other tests, in the language of
// -test.skip.
func (s *standing) skip(others []string) string {
	tops, subs := slices.Clone(others), []string(nil)
	for _, name := range slices.Sorted(maps.Keys(s.known)) {
		parts := strings.Split(name, "/")
		switch _, done := s.known[parts[0]]; {
		case len(parts) == 1:
			tops = append(tops, name)
		case len(parts) == 2 && !done:
			subs = append(subs, "^"+regexp.QuoteMeta(parts[0])+"$/^"+regexp.QuoteMeta(parts[1])+"$")
		}
	}
	if len(tops) > 0 {
		subs = append([]string{"^(" + strings.Join(tops, "|") + ")$"}, subs...)
	}
	return strings.Join(subs, "|")
}

// unit is what counts as one where a process dies: a test, or a direct subtest of one
// that is split.
func (s *standing) unit(name string) string {
	parts := strings.SplitN(name, "/", 3)
	if len(parts) > 1 && s.isSplit(parts[0]) {
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}

func (s *standing) isSplit(name string) bool { return slices.Contains(s.split, name) }

// root is the test that a subtest belongs to.
func root(name string) string {
	top, _, _ := strings.Cut(name, "/")
	return top
}
