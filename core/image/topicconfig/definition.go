package topicconfig

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Type is how a value is written, in the numbers of Kafka's DescribeConfigs.
type Type int8

// The types in use. (KIP-226, KIP-569)
const (
	Boolean Type = 1
	String  Type = 2
	Int     Type = 3
	Long    Type = 5
	Double  Type = 6
	List    Type = 7
)

// String is the type's name in lower case.
func (t Type) String() string {
	switch t {
	case Boolean:
		return "boolean"
	case String:
		return "string"
	case Int:
		return "int"
	case Long:
		return "long"
	case Double:
		return "double"
	case List:
		return "list"
	}
	return "type " + strconv.Itoa(int(t))
}

// Definition describes one setting. Values are shared: do not change them.
type Definition struct {
	Name    string
	Type    Type
	Default string
	// Allowed says in words what a value may be.
	Allowed string
	// Broker lists the broker properties that stand in for the setting, the one
	// that wins first.
	Broker []BrokerKey
	// Doc is one or two sentences for operators.
	Doc string
	// Inert settings are accepted and shown, and have no effect yet.
	Inert bool
	// ClusterWide settings decide what the whole cluster does: no broker can have
	// one of its own.
	ClusterWide bool

	check func(string) error
}

// BrokerKey is a broker property whose value, times Scale, is the setting's.
type BrokerKey struct {
	Name  string
	Scale int64 // 1 where the value is taken as it is
}

// Check says whether value is one that the setting may have. The error names
// key, value and what is allowed.
func (d Definition) Check(value string) error {
	if err := d.check(value); err != nil {
		return fmt.Errorf("%s cannot be %q: it must be %s", d.Name, value, d.Allowed)
	}
	return nil
}

// FromBroker is the value that a broker's properties give to the setting, and
// the property that gave it. The value is in the setting's own unit; a property
// that cannot be read is returned as it is, for Check to refuse.
func (d Definition) FromBroker(broker map[string]string) (value, key string, ok bool) {
	for _, k := range d.Broker {
		v, set := broker[k.Name]
		if !set {
			continue
		}
		return k.scale(v), k.Name, true
	}
	return "", "", false
}

// scale turns minutes and hours into milliseconds; -1 means 'none' in every
// unit.
func (k BrokerKey) scale(v string) string {
	if k.Scale == 1 {
		return v
	}
	n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
	if err != nil || n <= 0 {
		return v
	}
	if n > math.MaxInt64/k.Scale {
		return strconv.FormatInt(math.MaxInt64, 10)
	}
	return strconv.FormatInt(n*k.Scale, 10)
}

// boolean is a setting that is off by default.
func boolean(name string, broker []BrokerKey, doc string) Definition {
	return Definition{
		Name: name, Type: Boolean, Default: "false", Allowed: "true or false", Broker: broker, Doc: doc,
		check: func(v string) error { _, err := parseBool(v); return err },
	}
}

func integer(name string, t Type, def, lowest, highest int64, broker []BrokerKey, doc string) Definition {
	limit := int64(math.MaxInt64)
	if t == Int {
		limit = math.MaxInt32
	}
	allowed := fmt.Sprintf("a whole number of at least %d", lowest)
	if highest < limit {
		limit = highest
		allowed = fmt.Sprintf("a whole number from %d to %d", lowest, highest)
	}
	return Definition{
		Name: name, Type: t, Default: strconv.FormatInt(def, 10), Allowed: allowed, Broker: broker, Doc: doc,
		check: func(v string) error {
			n, err := parseInt(v)
			if err == nil && (n < lowest || n > limit) {
				err = strconv.ErrRange
			}
			return err
		},
	}
}

func ratio(name, def string, broker []BrokerKey, doc string) Definition {
	return Definition{
		Name: name, Type: Double, Default: def, Allowed: "a number from 0 to 1", Broker: broker, Doc: doc,
		check: func(v string) error {
			f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
			if err == nil && !(f >= 0 && f <= 1) {
				err = strconv.ErrRange
			}
			return err
		},
	}
}

func choice(name, def string, values []string, broker []BrokerKey, doc string) Definition {
	return Definition{
		Name: name, Type: String, Default: def, Allowed: oneOf(values), Broker: broker, Doc: doc,
		check: func(v string) error {
			if !slices.Contains(values, v) {
				return strconv.ErrSyntax
			}
			return nil
		},
	}
}

func list(name, def, allowed string, broker []BrokerKey, doc string, element func(string) bool) Definition {
	return Definition{
		Name: name, Type: List, Default: def, Allowed: allowed, Broker: broker, Doc: doc,
		check: func(v string) error {
			for _, e := range SplitList(v) {
				if !element(e) {
					return strconv.ErrSyntax
				}
			}
			return nil
		},
	}
}

// restricted narrows a definition to one value, where Kafka knows more than
// works here yet.
func restricted(d Definition, only, why string) Definition {
	d.Allowed = only + " (" + why + ")"
	d.check = func(v string) error {
		if strings.TrimSpace(v) != only {
			return strconv.ErrSyntax
		}
		return nil
	}
	return d
}

func inert(d Definition) Definition {
	d.Inert = true
	d.Doc += " Accepted and shown; it has no effect yet."
	return d
}

func clusterWide(d Definition) Definition {
	d.ClusterWide = true
	return d
}

func same(names ...string) []BrokerKey {
	keys := make([]BrokerKey, len(names))
	for i, n := range names {
		keys[i] = BrokerKey{Name: n, Scale: 1}
	}
	return keys
}

func oneOf(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	return strings.Join(values[:len(values)-1], ", ") + " or " + values[len(values)-1]
}

// SplitList reads a list value: elements between commas, blanks trimmed, empty
// ones dropped.
func SplitList(v string) []string {
	var out []string
	for e := range strings.SplitSeq(v, ",") {
		if e = strings.TrimSpace(e); e != "" {
			out = append(out, e)
		}
	}
	return out
}

func parseInt(v string) (int64, error) { return strconv.ParseInt(strings.TrimSpace(v), 10, 64) }

func parseBool(v string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(v)) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, strconv.ErrSyntax
}
