package sim

import (
	"context"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
)

// trouble brings a crash, and then, again and again while the faults are on, one
// of the things that happen to a broker.
func (s *simulation) trouble() {
	s.f.Arm([]func(){s.killBroker, s.killPlugin}[s.w.Rand.IntN(2)]) // at least one crash
	s.misfortunes()
}

func (s *simulation) misfortunes() {
	s.w.After(s.w.Between(20*time.Millisecond, s.opts.Calm), func() {
		if !s.f.On {
			return
		}
		s.happen()
		s.misfortunes()
	})
}

func (s *simulation) happen() {
	if !s.broker.up {
		return
	}
	switch s.w.Rand.IntN(10) {
	case 0, 1:
		s.f.Arm(s.killBroker)
	case 2, 3, 4:
		s.f.Arm(s.killPlugin)
	case 5, 6:
		s.f.Arm(s.losePower)
	case 7:
		s.report.Full++
		free := s.w.Rand.Int64N(600)
		s.w.Note("disk has %d bytes left", free)
		s.broker.disk.SetFree(free)
		s.w.After(s.w.Between(100*time.Millisecond, 2*time.Second), func() { s.broker.disk.SetFree(-1) })
	case 8:
		s.f.Stall = true
		s.w.Note("store stalls")
		s.w.After(s.w.Between(100*time.Millisecond, 3*time.Second), func() { s.f.Stall = false })
	case 9:
		s.trim()
	}
}

func (s *simulation) killBroker() {
	if s.broker.up {
		s.report.Kills++
		s.broker.kill()
		s.restart()
	}
}

func (s *simulation) killPlugin() {
	if s.broker.up {
		s.report.Deaths++
		s.w.Note("plugin dies")
		s.broker.store.die()
		s.pluginReturns()
	}
}

// restart starts the broker a little later.
func (s *simulation) restart() {
	life := s.broker.life
	s.w.After(s.w.Between(time.Millisecond, 300*time.Millisecond), func() {
		if life != s.broker.life {
			return
		}
		if err := s.broker.start(); err != nil {
			s.check.violate("the broker does not start: %v", err)
		}
	})
}

// pluginReturns is its host starting it again.
func (s *simulation) pluginReturns() {
	life := s.broker.life
	s.w.After(s.w.Between(time.Millisecond, 200*time.Millisecond), func() {
		if life == s.broker.life {
			s.broker.store.start()
			s.broker.manager.Restarted(storeName)
		}
	})
}

// losePower takes the machine: broker, plugin, and what was not flushed. Under
// the policy interval acknowledged records may go with it, which is what that
// policy means; there, only processes die.
func (s *simulation) losePower() {
	if s.opts.Flush == partition.FlushInterval || !s.broker.up {
		return
	}
	s.report.PowerLosses++
	s.w.Note("power is lost")
	s.broker.kill()
	lost, torn := s.broker.disk.LosePower(s.w.Rand.Uint64())
	clear(s.broker.pages)
	s.report.Lost += lost
	s.report.Torn += torn
	s.w.Note("%d batches are lost, %d torn", lost, torn)
	s.restart()
}

// trim asks that some records go.
func (s *simulation) trim() {
	p := model.Partition{Topic: topicID, Index: int32(s.w.Rand.IntN(s.opts.Partitions))}
	seen := s.check.of(p)
	if seen.hw == 0 {
		return
	}
	to := s.w.Rand.Int64N(seen.hw + 1)
	s.report.Trims++
	s.w.Note("trim partition %d to %d", p.Index, to)
	seen.trimmed = max(seen.trimmed, to) // from now on they may be gone
	life := s.broker.life
	s.broker.manager.StartTrim(context.Background(), model.TrimQuery{Partition: p, Offset: to}, func(a model.TrimAnswer) {
		if life == s.broker.life && a.Err == nil && a.LowWatermark < to {
			s.check.violate("partition %d: trimmed to %d, and the low watermark is %d", p.Index, to, a.LowWatermark)
		}
	})
}
