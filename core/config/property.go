package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brokerd/brokerd/core/image/topicconfig"
)

// flushInterval stands in for a topic setting too, but has a meaning of its own
// and is a field of Replicas.
const flushInterval = "log.flush.interval.ms"

// propertyField is one topic setting's stand-in. Sizes and times may have
// units; what is kept is what topicconfig reads.
type propertyField struct {
	at   *map[string]string
	name string
	def  topicconfig.Definition
}

func (f propertyField) parse(text string) error {
	if strings.HasSuffix(f.name, ".ms") {
		if ms, err := parseMillis(text); err == nil {
			text = strconv.FormatInt(ms, 10)
		}
	}
	if strings.HasSuffix(f.name, ".bytes") {
		if n, err := ParseBytes(text); err == nil {
			text = strconv.FormatInt(n, 10)
		}
	}
	if f.def.Check(text) != nil { // its own sentence has the topic's name for the setting
		return fmt.Errorf("it cannot be %q: it must be %s", text, f.def.Allowed)
	}
	if *f.at == nil {
		*f.at = make(map[string]string)
	}
	(*f.at)[f.name] = text
	return nil
}

func (f propertyField) format() string { return (*f.at)[f.name] }

// properties are the definitions that have a stand-in and an effect.
func properties() []topicconfig.Definition {
	return slices.DeleteFunc(topicconfig.Definitions(), func(d topicconfig.Definition) bool {
		return d.Inert || len(d.Broker) == 0 || d.Broker[0].Name == flushInterval
	})
}

func propertySettings() []setting {
	definitions := properties()
	out := make([]setting, 0, len(definitions))
	for _, d := range definitions {
		name := d.Broker[0].Name
		s := setting{name: name, about: d.Doc, field: func(c *Config) field {
			return propertyField{&c.Topics.Properties, name, d}
		}}
		for _, k := range d.Broker[1:] {
			s.coarser = append(s.coarser, coarser{k.Name, time.Duration(k.Scale) * time.Millisecond})
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b setting) int { return strings.Compare(a.name, b.name) })
	return out
}

func defaultProperties() map[string]string {
	out := make(map[string]string)
	for _, d := range properties() {
		out[d.Broker[0].Name] = d.Default
	}
	return out
}

// number reads a property that Check has passed; one that is not there is 0.
func (t Topics) number(name string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(t.Properties[name]), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// MinISR is min.insync.replicas.
func (t Topics) MinISR() int16 {
	return int16(min(t.number("min.insync.replicas"), math.MaxInt16))
}
