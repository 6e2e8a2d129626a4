package topicconfig

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// brokerTable is every setting that brokers have by themselves, and that is changed while
// they run, in name order: it stands in for no topic setting. It is never changed.
var brokerTable = []Definition{
	integer(followerRate, Long, math.MaxInt64, 0, math.MaxInt64, nil,
		"The bytes a second that a broker takes at most, from all leaders together, for those of its replicas that are out of the ISR and listed in their topic's follower.replication.throttled.replicas; 0 stops them. (KIP-73)"),
	integer(leaderRate, Long, math.MaxInt64, 0, math.MaxInt64, nil,
		"The bytes a second that a broker sends at most, to all followers together, of what it leads and lists in a topic's leader.replication.throttled.replicas, to replicas out of the ISR; 0 stops them. (KIP-73)"),
}

const (
	followerRate = "follower.replication.throttled.rate"
	leaderRate   = "leader.replication.throttled.rate"
)

// Unthrottled is the rate of a throttle that is not set.
const Unthrottled int64 = math.MaxInt64

// Broker is a broker's settings of brokerTable with every default filled in. Rates are in
// bytes a second; 0 lets nothing pass.
type Broker struct {
	LeaderThrottle   int64
	FollowerThrottle int64
}

// LookupOnBroker finds a setting that can be changed on brokers: one that stands in for a
// topic's, or one of brokers alone.
func LookupOnBroker(name string) (Definition, bool) {
	if d, _, ok := LookupBroker(name); ok {
		return d, true
	}
	return lookupAlone(name)
}

func lookupAlone(name string) (Definition, bool) {
	for _, d := range brokerTable {
		if d.Name == name {
			return d, true
		}
	}
	return Definition{}, false
}

// DropAlone takes from a broker's properties those that stand in for no topic setting, of
// what can be changed while it runs.
func DropAlone(broker map[string]string) {
	for _, d := range brokerTable {
		delete(broker, d.Name)
	}
}

// ResolveBroker is the settings of a broker, of which the first layer that says something
// counts. What ValidateBroker would have refused counts as not said.
func ResolveBroker(layers ...map[string]string) Broker {
	values := make(map[string]string, len(brokerTable))
	for _, d := range brokerTable {
		values[d.Name] = d.Default
		for _, layer := range layers {
			if v, ok := layer[d.Name]; ok && d.Check(v) == nil {
				values[d.Name] = v
				break
			}
		}
	}
	return Broker{LeaderThrottle: number(values[leaderRate]), FollowerThrottle: number(values[followerRate])}
}

// ValidateBroker says whether these broker properties can be changed while it runs. Keys
// that are none of those are refused.
func ValidateBroker(broker map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(broker)) {
		if _, ok := LookupOnBroker(key); !ok {
			return fmt.Errorf("%s is not a broker setting that can be changed here%s", key, suggestion(key, brokerNames()))
		}
		if d, ok := lookupAlone(key); ok {
			if err := d.Check(broker[key]); err != nil {
				return err
			}
		}
	}
	_, err := Resolve(broker, nil)
	return err
}

// ValidateOneBroker says whether one broker may have these properties, which
// ValidateBroker has passed, for itself.
func ValidateOneBroker(broker map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(broker)) {
		if d, _, ok := LookupBroker(key); ok && d.ClusterWide {
			return fmt.Errorf("%s cannot be set for one broker alone, because the whole cluster goes by it: set it for all brokers (an empty name), or for a topic", key)
		}
	}
	return nil
}

func brokerNames() []string {
	var names []string
	for _, d := range table {
		for _, k := range d.Broker {
			names = append(names, k.Name)
		}
	}
	for _, d := range brokerTable {
		names = append(names, d.Name)
	}
	return names
}
