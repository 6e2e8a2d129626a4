package rig

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// PollEvery is how often Eventually looks.
	PollEvery = 20 * time.Millisecond
	// askTimeout is how long one answer may take: a broker that has stopped gives none.
	askTimeout = 5 * time.Second
)

// Eventually calls f until it returns nil. It is for what nobody can be told of. Its error is
// f's last one, of those before the end of ctx if there are some, and why it was given up.
func Eventually(ctx context.Context, f func() error) error {
	tick := time.NewTicker(PollEvery)
	defer tick.Stop()
	var last error
	for {
		err := f()
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("given up (%w), the last answer was: %w", context.Cause(ctx), last)
		case <-tick.C:
		}
	}
}

// Ready waits until somebody at these addresses answers a client and knows so many brokers, or
// until the process has ended.
func (p *Process) Ready(ctx context.Context, addrs []string, brokers int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.DialTimeout(time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stopWatching := make(chan struct{})
	defer close(stopWatching)
	go func() {
		select {
		case <-p.done:
			cancel(fmt.Errorf("it ended: %w", errors.Join(p.err, context.Canceled)))
		case <-stopWatching:
		}
	}()
	return Eventually(ctx, func() error { return answers(ctx, client.SeedBrokers(), brokers) })
}

// answers asks one after the other, until one knows so many brokers.
func answers(ctx context.Context, seeds []*kgo.Broker, brokers int) error {
	var errs error
	for _, seed := range seeds {
		one, cancel := context.WithTimeout(ctx, askTimeout)
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{} // of none
		resp, err := seed.Request(one, req)
		cancel()
		if err == nil {
			known := len(resp.(*kmsg.MetadataResponse).Brokers)
			if known >= brokers {
				return nil
			}
			err = fmt.Errorf("it knows %d of %d brokers", known, brokers)
		}
		errs = errors.Join(errs, err)
	}
	return errs
}
