package broker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/coordinator"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/lifecycle"
	"github.com/brokerd/brokerd/core/loop"
	"github.com/brokerd/brokerd/core/membership"
	"github.com/brokerd/brokerd/core/replica"
	"github.com/brokerd/brokerd/core/server"
)

func TestStagesStopInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStages(slog.New(slog.DiscardHandler))
		var order []string
		ctx, cancel := context.WithCancel(t.Context())
		for _, name := range []string{"a", "b", "c"} {
			s.start(ctx, name, time.Second, func(ctx context.Context) error {
				<-ctx.Done()
				order = append(order, name)
				return ctx.Err()
			})
		}
		cancel() // the end of the caller's context stops nothing by itself
		synctest.Wait()
		if len(order) > 0 {
			t.Fatalf("stopped %v", order)
		}
		if err := s.stop(nil); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(order, []string{"c", "b", "a"}) {
			t.Errorf("stopped in the order %v", order)
		}
	})
}

func TestStagesTellWhoEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStages(slog.New(slog.DiscardHandler))
		boom := errors.New("boom")
		s.start(t.Context(), "a", time.Second, func(context.Context) error { return boom })
		if err := <-s.ended; !errors.Is(err, boom) || !strings.HasPrefix(err.Error(), "a: ") {
			t.Errorf("ended: %v", err)
		}
		s.start(t.Context(), "b", time.Second, func(context.Context) error { return nil })
		if err := <-s.ended; !errors.Is(err, errEnded) {
			t.Errorf("ended: %v", err)
		}
		if err := s.stop(nil); !errors.Is(err, boom) {
			t.Errorf("stop: %v", err)
		}
	})
}

// Operators are told to give a minute, and each part has to have the time that it
// takes for itself when it must give up.
func TestStopFitsIntoAMinute(t *testing.T) {
	if sum := adminStop + pluginsStop + replicasStop + quorumStop + upkeepStop + serverStop + groupsStop + membershipStop + leaveStop + transportStop + linksStop; sum >= time.Minute {
		t.Errorf("a stop may take %s", sum)
	}
	if own := server.DefaultConfig().DrainTimeout; serverStop <= own {
		t.Errorf("the server is given %s and drains for %s", serverStop, own)
	}
	if own := coordinator.DefaultConfig().ShutdownTimeout; groupsStop <= own {
		t.Errorf("the group coordinator is given %s and waits for its writes for %s", groupsStop, own)
	}
	if own := replica.DefaultConfig().ShutdownTimeout; replicasStop <= own {
		t.Errorf("the replicas are given %s and close their logs for %s", replicasStop, own)
	}
}

func TestStagesDoNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStages(slog.New(slog.DiscardHandler))
		release := make(chan struct{})
		s.start(t.Context(), "a", time.Second, func(ctx context.Context) error { <-ctx.Done(); return nil })
		s.start(t.Context(), "stuck", time.Minute, func(context.Context) error { <-release; return nil })
		began := time.Now()
		err := s.stop(nil)
		if err == nil || !strings.Contains(err.Error(), "stop stuck: it did not end within 1m0s") {
			t.Errorf("stop: %v", err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("took %s", took)
		}
		close(release)
	})
}

// Who waits to be registered hears of a part that fails meanwhile, as of a quorum that this
// node is no member of any more: nobody else would end the wait.
func TestAPartFailsDuringTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStages(slog.New(slog.DiscardHandler))
		boom := errors.New("boom")
		s.start(t.Context(), "quorum", time.Second, func(context.Context) error {
			time.Sleep(time.Minute)
			return boom
		})
		cfg := membership.Config{Lifecycle: lifecycle.Defaults()}
		cfg.Lifecycle.Incarnation = [16]byte{1}
		m, err := membership.New(cfg, membership.Deps{
			Commands: nobody{}, Clock: loop.System{}, Logger: slog.New(slog.DiscardHandler), Image: func() *image.Image { return &image.Image{} },
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		run, end := context.WithCancel(t.Context())
		go func() { ended <- m.Run(run) }()
		ctx, release := s.whole(t.Context())
		defer release()
		if err := m.Wait(ctx); !errors.Is(err, boom) || !strings.Contains(err.Error(), "quorum: ") {
			t.Errorf("waited, and got %v", err)
		}
		end()
		<-ended
	})
}

// nobody is a controller that never answers.
type nobody struct{}

func (nobody) Start(controller.Op, <-chan struct{}, func(controller.Answer)) {}
