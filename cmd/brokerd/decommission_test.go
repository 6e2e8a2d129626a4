package main

import "testing"

// What a decommission says: one sentence where there are too few brokers, whom it waits for, and
// who votes.
func TestDecommissionTexts(t *testing.T) {
	v := placed(t, 4, "123/123/1", "1234/123/1/+4/-3", "213/213/2")
	_, cannot := v.planDecommission(1, false)
	if len(cannot) > 0 || v.awaited() != "" {
		t.Errorf("stays %v, waits %q", cannot, v.awaited())
	}
	v.Brokers[3].State = stateFenced
	if got, want := v.awaited(), "; they wait for broker 4, which does not serve"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	v.Brokers[1].State = stateStopping
	if got, want := v.awaited(), "; they wait for brokers 2 and 4, which do not serve"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	_, cannot = v.planDecommission(1, false)
	want := "only broker 3 serves without it, too few for the replicas of t-0 and 1 more: start another one first, or say --fewer-replicas"
	if len(cannot) != 2 || !cannot[0].few || tooFew(cannot, v.serving(1)) != want {
		t.Errorf("got %v", cannot)
	}
	silent, late := int64(100), int64(60_000)
	v.Controllers = []controllerView{{ID: 2, Role: roleLeader}, {ID: 1, Role: roleVoter}, {ID: 5, Role: roleLearner, SilentMillis: &silent}, {ID: 6, Role: roleLearner, SilentMillis: &late}}
	if got, want := v.votersText(), "; brokers 1 and 2 do, and nothing can be changed while either is down: start another broker, which votes by itself"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	v.Controllers[2].Role = roleVoter
	if got, want := v.votersText(), "; brokers 1, 2 and 5 do"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for id, runs := range map[int32]bool{1: true, 4: false, 5: true, 6: false, 7: false} {
		if v.runs(id) != runs {
			t.Errorf("broker %d runs: %v, want %v", id, !runs, runs)
		}
	}
}
