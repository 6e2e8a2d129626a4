package cluster

import (
	"fmt"
	"reflect"
	"strings"
)

// Report is what happened in one run.
type Report struct {
	Seed        uint64
	Acked       int // records, by acknowledgement
	Reads       int // records
	Retried     int
	LostAnswers int
	Elections   int
	ISRChanges  int
	Truncations int
	Kills       int
	PowerLosses int
	Deaths      int // of stores alone
	FallBacks   int // of stores whose brokers lived on
	Pauses      int
	Cuts        int
	Slow        int // ways made slow or lossy
	Stalls      int // of stores
	Full        int // times that a disk filled
	Failed      int // operations of stores
	LostBatches int
	Fences      int // of live brokers
	Isolations  int // of leaders, with one follower
	Unheard     int // likewise, of those that had just asked for another ISR
	Overtaken   int // questions for another ISR that came late
	Ballots     int // votes after which voter and candidate went
	Leaves      int // of brokers in order
	Wipes       int // of disks
	AllAtOnce   int // times that all nodes went
	Blackouts   int // times that all lost power, and not all was flushed
	Excused     int // partitions at such times, of which something that was committed may be lost
	Joins       int // of nodes
	Raised      int // partitions, below their target, that were given a replica more
	Retired     int // likewise, for ever
	Lost        int // of those, with their disks
	Returned    int // likewise, that came back when they were forgotten, and ended
	Topics      int
	Removals    int // of topics
	Changes     int // of settings
	Throttles   int // likewise, of rates by which replicas catch up
	Reassigned  int // partitions, as it was asked
	Moves       int // of partitions, that came to their end
	SaveDeaths  int // of nodes, in a save of the quorum's disk
	Rounds      int // of faults
	Seconds     int // that were simulated
	Events      int // of the simulation
	Trace       uint64
	Violations  []string
}

// Crashes counts every end of a process.
func (r Report) Crashes() int { return r.Kills + r.Deaths + r.PowerLosses + r.SaveDeaths }

// String is a run's numbers, for the log.
func (r Report) String() string {
	var b strings.Builder
	v := reflect.ValueOf(r)
	for i := range v.NumField() {
		if v.Field(i).Kind() == reflect.Int {
			fmt.Fprintf(&b, "%s=%d ", strings.ToLower(v.Type().Field(i).Name), v.Field(i).Int())
		}
	}
	return b.String()
}

// Add adds the numbers of another run.
func (r *Report) Add(o Report) {
	v, w := reflect.ValueOf(r).Elem(), reflect.ValueOf(o)
	for i := range v.NumField() {
		if v.Field(i).Kind() == reflect.Int {
			v.Field(i).SetInt(v.Field(i).Int() + w.Field(i).Int())
		}
	}
}

// leastAcked is how many records each run must have acknowledged at least.
const leastAcked = 20

// Wrong says what is wrong with a run, or nothing.
func (r Report) Wrong() string {
	switch {
	case len(r.Violations) > 0:
		return "violated: " + r.Violations[0]
	case r.Acked < leastAcked:
		return fmt.Sprintf("only %d records were acknowledged", r.Acked)
	}
	return ""
}

// floors are what each minute of a long run must have met, so that a clean run is not an
// idle one.
var floors = []struct {
	what  string
	least float64
	got   func(Report) int
}{
	{"acknowledged records", 100, func(r Report) int { return r.Acked }},
	{"elections", 2, func(r Report) int { return r.Elections }},
	{"changes of ISRs", 5, func(r Report) int { return r.ISRChanges }},
	{"truncations", 0.3, func(r Report) int { return r.Truncations }},
	{"crashes", 2, func(r Report) int { return r.Crashes() }},
}

// Idle says of what too little happened in a long run for it to count, or nothing.
func (r Report) Idle() string {
	for _, f := range floors {
		if least := int(f.least * float64(r.Seconds) / 60); f.got(r) < least {
			return fmt.Sprintf("%d %s in %d s", f.got(r), f.what, r.Seconds)
		}
	}
	return ""
}
