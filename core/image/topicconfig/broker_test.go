package topicconfig

import (
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestBrokersAlone(t *testing.T) {
	for _, d := range brokerTable {
		if err := d.Check(d.Default); err != nil || d.Doc == "" {
			t.Errorf("%s: %v, %q", d.Name, err, d.Doc)
		}
		if _, _, twice := LookupBroker(d.Name); twice {
			t.Errorf("%s stands in for a topic's setting too", d.Name)
		}
		if got, ok := LookupOnBroker(d.Name); !ok || got.Name != d.Name {
			t.Errorf("LookupOnBroker(%s) = %s, %v", d.Name, got.Name, ok)
		}
		for value, ok := range map[string]bool{"0": true, "1": true, "9223372036854775807": true, "-1": false, "1.5": false, "fast": false, "9223372036854775808": false} {
			if err := ValidateBroker(map[string]string{d.Name: value}); (err == nil) != ok || err != nil && !strings.HasPrefix(err.Error(), d.Name) {
				t.Errorf("%s=%s: %v", d.Name, value, err)
			}
		}
		if err := ValidateOneBroker(map[string]string{d.Name: "1"}); err != nil {
			t.Errorf("for one broker: %v", err)
		}
		if err := Validate(map[string]string{d.Name: "1"}); err == nil {
			t.Errorf("%s passed for a topic", d.Name)
		}
	}
	if err := ValidateBroker(map[string]string{"leader.replication.throttle.rate": "1"}); err == nil || !strings.Contains(err.Error(), "did you mean leader.replication.throttled.rate?") {
		t.Errorf("mistyped: %v", err)
	}
	left := map[string]string{"log.retention.ms": "1", "leader.replication.throttled.rate": "1"}
	if DropAlone(left); !maps.Equal(left, map[string]string{"log.retention.ms": "1"}) {
		t.Errorf("DropAlone left %v", left)
	}
}

func TestResolveBroker(t *testing.T) {
	for _, tt := range []struct {
		own, all map[string]string
		want     Broker
	}{
		{nil, nil, Broker{Unthrottled, Unthrottled}},
		{map[string]string{leaderRate: "5"}, map[string]string{leaderRate: "6", followerRate: "7"}, Broker{5, 7}},
		{map[string]string{leaderRate: "much", followerRate: "-1"}, map[string]string{leaderRate: "0"}, Broker{0, Unthrottled}},
	} {
		if got := ResolveBroker(tt.own, tt.all); got != tt.want {
			t.Errorf("%v over %v: %+v, want %+v", tt.own, tt.all, got, tt.want)
		}
	}
}

func TestThrottledReplicas(t *testing.T) {
	const key = "follower.replication.throttled.replicas"
	for list, ok := range map[string]bool{
		"": true, "*": true, "0:1": true, "0:1, 2147483647:2147483647,": true,
		"none": false, "0": false, "0:": false, ":1": false, "0:1:2": false, "-1:0": false, "0:+1": false, "0:-1": false, "2147483648:0": false, "0:0x1": false,
	} {
		if err := Validate(map[string]string{key: list}); (err == nil) != ok {
			t.Errorf("%q: %v", list, err)
		}
	}
	some, all, none := ParseReplicas("0:1, 3:2"), ParseReplicas("0:1,*"), ParseReplicas("")
	if some.Empty() || all.Empty() || !none.Empty() || !some.Has(0, 1) || !some.Has(3, 2) || some.Has(0, 2) || some.Has(3, 1) || !all.Has(9, 9) || none.Has(0, 0) {
		t.Errorf("%+v, %+v, %+v", some, all, none)
	}
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.String().Draw(t, "list")
		if ParseReplicas(list).Empty() && Validate(map[string]string{key: list}) == nil && len(SplitList(list)) > 0 {
			t.Errorf("%q names nobody", list)
		}
	})
}
