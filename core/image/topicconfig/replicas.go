package topicconfig

import (
	"strconv"
	"strings"
)

// Replicas is the replicas that a topic's list of throttled ones names. The zero value is
// none.
type Replicas struct {
	all  bool
	each map[replica]struct{}
}

type replica struct{ partition, broker int32 }

// ParseReplicas reads a list that Check has passed: * is all. What cannot be read names
// nobody.
func ParseReplicas(list string) Replicas {
	var r Replicas
	for _, e := range SplitList(list) {
		if e == "*" {
			return Replicas{all: true}
		}
		if one, ok := parseReplica(e); ok {
			if r.each == nil {
				r.each = make(map[replica]struct{})
			}
			r.each[one] = struct{}{}
		}
	}
	return r
}

// Empty reports whether nobody is named.
func (r Replicas) Empty() bool { return !r.all && len(r.each) == 0 }

// Has reports whether the replica of a partition on a broker is named.
func (r Replicas) Has(partition, broker int32) bool {
	_, named := r.each[replica{partition, broker}]
	return r.all || named
}

// parseReplica reads partition:broker.
func parseReplica(e string) (replica, bool) {
	partition, broker, ok := strings.Cut(e, ":")
	if !ok || strings.ContainsAny(e, "+-_") {
		return replica{}, false
	}
	p, err := strconv.ParseInt(partition, 10, 32)
	if err != nil {
		return replica{}, false
	}
	b, err := strconv.ParseInt(broker, 10, 32)
	return replica{int32(p), int32(b)}, err == nil
}
