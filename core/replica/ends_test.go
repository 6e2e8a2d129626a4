package replica

import (
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

func TestLogEnds(t *testing.T) {
	f := newFixture(t, 2)
	f.mustProduce(part(1), "a", "b")
	for begun := time.Now(); len(f.LogEnds([]model.Partition{part(0)})) == 0 && time.Since(begun) < 10*time.Second; {
		f.fetchOne(part(0), 0, 10*time.Millisecond) // the log is being opened
	}
	unknown := model.Partition{Topic: model.TopicID{99}}
	ends := f.LogEnds([]model.Partition{part(1), unknown, part(0)})
	if len(ends) != 2 || ends[0].Partition != part(1) || ends[0].LEO != 2 || ends[0].LastEpoch < 0 {
		t.Errorf("log ends %+v", ends)
	}
	if len(ends) == 2 && (ends[1].Partition != part(0) || ends[1].LEO != 0) {
		t.Errorf("the end of a log without records is %+v", ends[1])
	}
	all := f.Replicas()
	if len(all) != 2 || all[0].Partition != part(0) || all[1].LEO != 2 || !all[1].Leader {
		t.Errorf("replicas %+v", all)
	}
}
