package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// capabilities are what a test may wait for: the words that an excuse begins with.
// Groups, produce, fetch and the administration of brokers are not among them.
func capabilities() []string {
	return []string{
		"SASL", "ACLs", "transactions", "KIP-848", "share groups",
		"quotas", "compaction", "features",
	}
}

// excuse is why a test may fail: the capability that it waits for, and more.
type excuse struct {
	capability string
	reason     string
}

// readExcused reads a list of excused tests: on each line a name, the capability that
// it waits for, a colon, and what of it the test needs.
//
//	pkg/kgo.TestSCRAMAuth   SASL: it logs in with SCRAM-SHA-256
func readExcused(r io.Reader) (map[string]excuse, error) {
	all := map[string]excuse{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, why, _ := strings.Cut(line, " ")
		capability, reason, found := strings.Cut(strings.TrimSpace(why), ":")
		reason = strings.TrimSpace(reason)
		if !found || reason == "" {
			return nil, fmt.Errorf("line %d: %s has no reason: want `name capability: reason`", n, name)
		}
		if !contains(capabilities(), capability) {
			return nil, fmt.Errorf("line %d: %s waits for %q, which is none of %s", n, name, capability, strings.Join(capabilities(), ", "))
		}
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("line %d: %s is there twice", n, name)
		}
		all[name] = excuse{capability, reason}
	}
	return all, lines.Err()
}

func contains(all []string, one string) bool {
	for _, s := range all {
		if s == one {
			return true
		}
	}
	return false
}
