package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// placed is a cluster of brokers 1 to n, in racks a and b in turn, with partitions that are
// given as "replicas/isr/leader", and while they are reassigned "/+adding/-removing".
func placed(t *testing.T, brokers int32, partitions ...string) *clusterView {
	t.Helper()
	ids := func(s string) (out []int32) {
		for _, c := range s {
			out = append(out, c-'0')
		}
		return out
	}
	v := &clusterView{}
	for id := int32(1); id <= brokers; id++ {
		v.Brokers = append(v.Brokers, brokerView{ID: id, State: stateServing, Rack: string('a' + (id-1)%2)})
	}
	for i, s := range partitions {
		f := strings.Split(s, "/")
		p := partitionView{topic: "t", index: int32(i), replicas: ids(f[0]), isr: ids(f[1]), leader: -1, minISR: 2}
		if f[2] != "" {
			p.leader = ids(f[2])[0]
		}
		for _, x := range f[3:] {
			if list := ids(x[1:]); x[0] == '+' {
				p.adding = list
			} else {
				p.removing = list
			}
		}
		v.partitions = append(v.partitions, p)
	}
	return v
}

func planText(moves []move, cannot []stuck) string {
	var out []string
	for _, m := range moves {
		out = append(out, strings.Trim(strings.ReplaceAll(fmt.Sprint(m.partition.index, "=", m.replicas), " ", ""), "[]"))
	}
	for _, s := range cannot {
		out = append(out, fmt.Sprintf("%d!", s.partition.index))
		if s.why == "" {
			out = append(out, "without a reason")
		}
	}
	return strings.ReplaceAll(strings.Join(out, " "), "[", "")
}

func TestPlanDrain(t *testing.T) {
	v := placed(t, 3, "123/123/1", "213/213/2", "132/132/1", "12/1/1", "1/1/1", "213/123/1", "123/23/2", "123/123/1/+3", "321/123/3")
	// 3 leads one partition already, and 2 two; 3 and 4 have nobody else, 7 is under way.
	if got, want := planText(v.planDrain(1)), "0=321 2=321 5=231 6=231 3! 4! 7!"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	v.Brokers[1].State = stateFenced
	if got, want := planText(v.planDrain(1)), "0=321 2=321 5=321 6=321 3! 4! 7!"; got != want {
		t.Errorf("with broker 2 fenced: %s, want %s", got, want)
	}
	if got := planText(placed(t, 2, "12/12/1").planDrain(2)); got != "" {
		t.Errorf("of one that leads nothing: %s", got)
	}
}

// What a drain takes comes back by its undoing, as far as it is the broker's share.
func TestPlanReturn(t *testing.T) {
	v := placed(t, 3, "231/123/2", "231/123/2", "321/123/3", "321/123/3", "32/32/3", "231/23/2")
	if got, want := planText(v.planReturn(1), nil), "0=123 2=132"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := planText(placed(t, 3, "123/123/1", "213/123/2", "321/123/3").planReturn(1), nil); got != "" {
		t.Errorf("of one that has its share: %s", got)
	}
}

func TestPlanDecommission(t *testing.T) {
	for _, c := range []struct {
		name  string
		view  *clusterView
		fewer bool
		want  string
	}{
		{"in the place of it", placed(t, 4, "123/123/1", "214/214/2"), false, "0=423 1=234"},
		{"in another rack where there is one", placed(t, 4, "12/12/1", "14/14/1"), false, "0=32 1=34"},
		{"to the one that has least", placed(t, 4, "1/1/1", "2/2/2", "3/3/3", "1/1/1"), false, "0=4 3=2"},
		{"nobody to take it", placed(t, 3, "123/123/1", "12/12/1"), false, "1=32 0!"},
		{"with fewer", placed(t, 3, "123/123/1", "12/12/1"), true, "0=23 1=32"},
		{"the only one", placed(t, 1, "1/1/1"), true, "0!"},
		{"under way", placed(t, 4, "1234/123/1/+4/-1"), false, ""},
		{"under way to it", placed(t, 4, "1234/234/2/+1/-4"), false, "0=423"},
	} {
		if got := planText(c.view.planDecommission(1, c.fewer)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestClusterProblems(t *testing.T) {
	v := placed(t, 3, "123/123/1", "123/1/1", "12//", "1234/123/1/+4/-1")
	v.Brokers[2].State = stateFenced
	silent := int64(12_345)
	v.Controllers = []controllerView{{ID: 2, Role: roleLeader}, {ID: 1, Role: roleVoter, SilentMillis: &silent}, {ID: 3, Role: roleVoter}}
	v.count()
	v.judge()
	want := []string{
		"voter 1 was last heard of 12s ago",
		"voter 3 was not heard of since broker 2 leads the quorum",
		"broker 3 is fenced: it is stopped, starting, or not reached by the controller",
		"1 of 4 partitions have no leader: they cannot be read or written (t-2)",
		"2 of 4 partitions have fewer replicas in sync than writes with acks=all need: these are refused (t-1, ...)",
		"2 of 4 partitions have replicas that are not in sync (t-1, ...)",
	}
	if !slices.Equal(v.Problems, want) {
		t.Errorf("got %q", v.Problems)
	}
	if b := v.Brokers[0]; b.Leaders != 3 || b.Replicas != 4 || b.Behind != 1 || v.Partitions.Reassigning != 1 {
		t.Errorf("broker %+v, partitions %+v", b, v.Partitions)
	}
	well := placed(t, 3, "123/123/1")
	well.count()
	if well.judge(); len(well.Problems) > 0 {
		t.Errorf("all is well, and it says %q", well.Problems)
	}
}

// One broker alone: what is shown of it, and that it cannot be taken away.
func TestBrokerCommands(t *testing.T) {
	address, _ := dev(t, t.TempDir())
	call := caller(t, address)
	call("", exitOK, "topic create orders -p 2")
	out, _ := call("", exitOK, "cluster status")
	for _, want := range []string{"\n1           leader ", " serving  2        2         0\n", "\npartitions 2, without leader 0, below min isr 0, under-replicated 0, reassigning 0\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("the status lacks %q:\n%s", want, out)
		}
	}
	if out, _ = call("", exitOK, "broker list -o json"); !strings.Contains(out, `"state": "serving"`) || strings.Contains(out, `"epoch": null`) {
		t.Errorf("brokers: %s", out)
	}
	if _, errs := call("", exitFailed, "broker drain 1"); !strings.Contains(errs, "orders-0 has no other replica") {
		t.Errorf("drain: %s", errs)
	}
	if _, errs := call("", exitFailed, "broker decommission 1"); !strings.Contains(errs, "decommission broker 1: no other broker serves, too few for the replicas of orders-0 and 1 more: start another one first") {
		t.Errorf("decommission: %s", errs)
	}
	call("", exitNotFound, "broker drain 9")
	call("", exitNotFound, "broker decommission 9")
	call("", exitUsage, "broker drain one")
}
