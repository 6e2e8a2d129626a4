package coordinator

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"pgregory.net/rapid"
)

// disorder answers appends as a log may that fails and changes its leader meanwhile.
type disorder struct {
	*stepped
	// landed says of each open append whether it is in the log: that is settled when the
	// log gets it, and told later, in any order, or left open.
	landed []bool
	asked  []*answer[model.CommittedOffsets]
	value  []int64 // by commit
	group  []int   // by commit
}

// answerLater leaves every append open.
func (d *disorder) answerLater(t *rapid.T) func(a model.Append) (model.Appended, bool) {
	return func(a model.Append) (model.Appended, bool) {
		landed := rapid.Bool().Draw(t, "lands")
		if landed {
			d.log.put(a.Partition.Index, a.Data, true)
		}
		d.landed = append(d.landed, landed)
		return model.Appended{}, false
	}
}

// tell answers one of the open appends.
func (d *disorder) tell(i int, known bool) {
	landed, done := d.landed[i], d.log.open[i]
	d.landed, d.log.open = slices.Delete(d.landed, i, i+1), slices.Delete(d.log.open, i, i+1)
	switch {
	case !known:
		done(model.Appended{Err: errOpen})
	case landed:
		done(model.Appended{})
	default:
		done(model.Appended{Err: errRefused, Refused: true})
	}
}

// Whatever becomes of appends, in whatever order that is told, and whoever leads
// meanwhile: every commit has one answer, what was acknowledged stays, and what is shown
// is what the log says.
func TestAnyOrderOfAnswers(t *testing.T) {
	const groups = 3
	rapid.Check(t, func(rt *rapid.T) {
		d := &disorder{stepped: newStepped(t, 1, nil)}
		d.turn()
		d.log.answer = d.answerLater(rt)
		leads := true
		rt.Repeat(map[string]func(*rapid.T){
			"commit": func(rt *rapid.T) {
				g := rapid.IntRange(0, groups-1).Draw(rt, "group")
				d.group, d.value = append(d.group, g), append(d.value, int64(len(d.value)))
				d.asked = append(d.asked, d.commit(fmt.Sprint("g", g), int64(len(d.value)-1)))
			},
			"turn": func(*rapid.T) { d.turn() },
			"answer": func(rt *rapid.T) {
				if len(d.landed) == 0 {
					rt.Skip("nothing is open")
				}
				d.tell(rapid.IntRange(0, len(d.landed)-1).Draw(rt, "which"), rapid.Bool().Draw(rt, "known"))
			},
			"leader": func(*rapid.T) {
				leader := model.NodeID(1)
				if leads {
					leader = model.NoNode
				}
				leads = !leads
				d.Apply(d.cluster.apply(leaderChange(offsetsID, leader)))
			},
		})
		d.settle(leads)
		d.check(rt, groups)
	})
}

// settle answers all that is open, and lets this broker lead.
func (d *disorder) settle(leads bool) {
	if !leads {
		d.Apply(d.cluster.apply(leaderChange(offsetsID, 1)))
	}
	for d.turn(); len(d.landed) > 0; d.turn() {
		d.tell(0, true)
	}
	d.advance(time.Minute)
}

func (d *disorder) check(rt *rapid.T, groups int) {
	told := make(map[int]int64)
	for i, a := range d.asked {
		if a.times != 1 {
			rt.Fatalf("commit %d has %d answers", i, a.times)
		}
		if committed(a) == nil {
			told[d.group[i]] = d.value[i]
		}
	}
	if n := len(d.shards[0].requests); n > 0 {
		rt.Errorf("%d questions are open", n)
	}
	shown := make([]int64, groups)
	for g := range groups {
		at, err := d.fetch(fmt.Sprint("g", g))
		if least, some := told[g]; err != nil || some && at < least {
			rt.Errorf("group %d shows %d (%v), and was told %d", g, at, err, least)
		}
		shown[g] = at
	}
	d.log.answer = nil
	d.restart(nil)
	d.turn()
	for g := range groups {
		if at, err := d.fetch(fmt.Sprint("g", g)); err != nil || at != shown[g] {
			rt.Errorf("group %d showed %d, and the log says %d (%v)", g, shown[g], at, err)
		}
	}
}
