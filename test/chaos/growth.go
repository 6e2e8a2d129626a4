package main

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// growing is one broker that becomes three.
type growing struct {
	*run
	table *table
	id    string // the cluster's
}

// growth starts one broker alone, and joins two, under load: each step is met by the kill of a
// broker that is there. In the end the first one loses its disk.
func growth(opts options, number int, all *table) error {
	dir := filepath.Join(opts.dir, fmt.Sprintf("growth-%d", number))
	l := newWatched()
	r, err := opts.newRun(dir, uint64(number)+1, l)
	if err != nil {
		return err
	}
	defer r.stop()
	c, g := r.cluster, &growing{table: all, run: r}
	first := c.node(1)
	first.alone = true
	if err := first.start(); err != nil {
		return err
	}
	if err := c.createTopic(1); err != nil {
		return fmt.Errorf("create the topic: %w; see%s", err, c.outputs())
	}
	s, err := c.state(1)
	if err != nil {
		return err
	}
	g.id = s.clusterID
	ld, err := startLoad(c.addrs(), l)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"grow-join", func() error { return g.join(2) }},
		{"grow-join", func() error { return g.join(3) }},
		{"grow-replicas", g.replicate},
		{"grow-wipe", g.wipeFirst},
	} {
		began := time.Now()
		l.watchPauses()
		err := step.do()
		mark := l.mark()
		if err == nil {
			err = eventually(servedMax, func() error { return l.passed(mark) })
		}
		pause := l.pause()
		all.add(step.name, pause)
		say(opts.out, "growth %d: %s took %s, pause %s\n", number, step.name, time.Since(began).Round(time.Millisecond), pause.Round(time.Millisecond))
		if err != nil {
			l.violate(notServed, "growth %d, %s: %v", number, step.name, err)
			break
		}
	}
	ld.finish()
	c.readBackFromEach()
	l.history.finish()
	all.count(l)
	return nil
}

// join starts broker n, and kills one of those that run.
func (g *growing) join(n int) error {
	b := g.node(n)
	for _, other := range g.nodes[:n-1] {
		b.seeds = append(b.seeds, other.reached)
	}
	if err := b.start(); err != nil {
		return err
	}
	if err := g.strike(n); err != nil {
		return err
	}
	if err := g.oneCluster(n); err != nil {
		return err
	}
	if n < brokers {
		return nil
	}
	return g.awaitVoters()
}

// strike kills one of the first so many brokers at a drawn moment.
func (g *growing) strike(among int) error {
	wait(g.between(0, g.longest*3/10))
	n, down := 1+g.rng.IntN(among), g.between(0, g.longest/5)
	say(g.out, "%s broker %d is killed, down for %s\n", time.Now().Format("15:04:05.000"), n, down.Round(time.Millisecond))
	if err := g.node(n).end(syscall.SIGKILL); err != nil {
		return err
	}
	wait(down)
	return g.node(n).start()
}

// oneCluster waits until each of the first so many brokers tells of all of them, and is of the
// one cluster.
func (g *growing) oneCluster(count int) error {
	for n := 1; n <= count; n++ {
		err := eventually(inSyncMax, func() error {
			s, err := g.state(n)
			if s.clusterID != "" && s.clusterID != g.id {
				g.ledger.violate(secondCluster, "broker %d is of cluster %s, and the first was of %s", n, s.clusterID, g.id)
			}
			if err != nil {
				return fmt.Errorf("broker %d: %w", n, err)
			}
			if s.brokers != count {
				return fmt.Errorf("broker %d tells of %d brokers, and there are %d", n, s.brokers, count)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// replicate gives all three brokers the topic's data, and kills one meanwhile.
func (g *growing) replicate() error {
	var req kadm.AlterPartitionAssignmentsReq
	for p := range partitions {
		replicas := []int32{1, 2, 3}
		g.rng.Shuffle(brokers, func(i, j int) { replicas[i], replicas[j] = replicas[j], replicas[i] })
		req.Assign(topicName, int32(p), replicas)
	}
	admin := kadm.NewClient(g.asking)
	err := eventually(servedMax, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		defer cancel()
		resp, err := admin.AlterPartitionAssignments(ctx, req)
		if err == nil {
			err = resp.Error()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("ask for replicas: %w", err)
	}
	if err := g.strike(brokers); err != nil {
		return err
	}
	if err := g.awaitInSync(); err != nil {
		return err
	}
	two := "2"
	return eventually(servedMax, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		defer cancel()
		resp, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "min.insync.replicas", Value: &two}}, topicName)
		if err == nil && len(resp) > 0 {
			err = resp[0].Err
		}
		return err
	})
}

// wipeFirst has the first broker lose its disk.
func (g *growing) wipeFirst() error {
	first := g.node(1)
	if err := first.end(syscall.SIGKILL); err != nil {
		return err
	}
	if err := first.wipe(); err != nil {
		return err
	}
	first.alone, first.seeds = false, []string{g.node(2).reached, g.node(3).reached}
	if err := first.start(); err != nil {
		return err
	}
	if err := g.strike(brokers); err != nil {
		return err
	}
	if err := g.oneCluster(brokers); err != nil {
		return err
	}
	if err := g.awaitInSync(); err != nil {
		return err
	}
	return g.awaitVoters()
}
