package e2e

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestGroupsStayWithinTheBudget: 400 groups of one member, each of which offers a
// megabyte, come to hold no more than groups may. Who committed before goes on.
func TestGroupsStayWithinTheBudget(t *testing.T) {
	const budget, own, attackers, atOnce = 128 << 20, 128 << 20, 400, 16
	b := startBrokerOn(t, t.TempDir(), []string{"BROKERD_MEMORY=128MiB"})
	createTopic(t, b.addr(), "orders", 1)
	admin := newAdmin(t, b.addr())
	commit := func(at int64) error {
		var offsets kadm.Offsets
		offsets.AddOffset("orders", 0, at, -1)
		return admin.CommitAllOffsets(testContext(t, startTimeout), "worker", offsets)
	}
	if err := commit(1); err != nil {
		t.Fatal(err)
	}
	before := memoryOf(t, b, "VmRSS:")
	var taken, refused atomic.Int64
	groups := make(chan string)
	var all sync.WaitGroup
	for range atOnce {
		old := oldClient(t, b.addr())
		all.Go(func() {
			for group := range groups {
				var err error
				late := eventually(testContext(t, 2*time.Minute), func() error {
					if err = joinLarge(t, old, group); errors.Is(err, kerr.CoordinatorLoadInProgress) {
						return err
					}
					return nil
				})
				switch {
				case late != nil:
					t.Errorf("group %s: %v", group, late)
				case err == nil:
					taken.Add(1)
				case errors.Is(err, kerr.CoordinatorNotAvailable):
					refused.Add(1)
				default:
					t.Errorf("group %s: %v", group, err)
				}
			}
		})
	}
	for i := range attackers {
		groups <- fmt.Sprint("attack-", i)
	}
	close(groups)
	all.Wait()
	peak := memoryOf(t, b, "VmHWM:")
	t.Logf("taken=%d refused=%d rss_before=%d MiB rss_peak=%d MiB", taken.Load(), refused.Load(), before>>20, peak>>20)
	if taken.Load() < 8 || taken.Load() > 16 || taken.Load()+refused.Load() != attackers {
		t.Errorf("%d groups of a megabyte were taken in, %d refused", taken.Load(), refused.Load())
	}
	if limit := budget + own; peak > limit {
		t.Errorf("resident memory rose to %d MiB, limit %d MiB", peak>>20, limit>>20)
	}
	if err := commit(2); err != nil {
		t.Errorf("a group that was there before: %v", err)
	}
}

// joinLarge joins a group with a megabyte of metadata, and syncs with it.
func joinLarge(t *testing.T, c *kgo.Client, group string) error {
	join := joinRequest(group)
	join.SessionTimeoutMillis, join.Protocols[0].Metadata = 600_000, make([]byte, 1_000_000)
	resp, err := c.SeedBrokers()[0].Request(t.Context(), join)
	if err != nil {
		return err
	}
	joined := resp.(*kmsg.JoinGroupResponse)
	if err := kerr.ErrorForCode(joined.ErrorCode); err != nil {
		return err
	}
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.Generation, sync.MemberID = group, joined.Generation, joined.MemberID
	_, err = c.SeedBrokers()[0].Request(t.Context(), sync)
	return err
}
