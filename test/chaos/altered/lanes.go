package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/brokerd/brokerd/sdk/transport"
)

// lanes makes transports with a port for each lane: the data lane's, which is the node's
// endpoint, and the next one, for control. So a network can cut one of them alone.
type lanes struct{ transport.Provider }

// Open implements transport.Provider.
func (l lanes) Open(ctx context.Context, cfg transport.Config) (transport.Transport, error) {
	data, err := l.Provider.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	settings, err := controlSettings(cfg.Settings)
	if err != nil {
		return nil, errors.Join(err, data.Close())
	}
	cfg.Settings, cfg.Endpoint = settings, ""
	control, err := l.Provider.Open(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, data.Close())
	}
	t := &laned{Transport: data, control: control, accepted: make(chan accepted)}
	t.accepting, t.stop = context.WithCancel(context.Background())
	go t.accept(data)
	go t.accept(control)
	return t, nil
}

// controlSettings are those of the control lane's transport.
func controlSettings(section []byte) ([]byte, error) {
	var all map[string]any
	if err := json.Unmarshal(section, &all); err != nil {
		return nil, err
	}
	for _, name := range []string{"listen", "advertise"} {
		at, _ := all[name].(string)
		next, err := nextPort(at)
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", name, at, err)
		}
		all[name] = next
	}
	return json.Marshal(all)
}

func nextPort(endpoint string) (string, error) {
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(port)
	return net.JoinHostPort(host, strconv.Itoa(n+1)), err
}

// laned is a transport of two.
type laned struct {
	transport.Transport // of the data lane
	control             transport.Transport
	accepted            chan accepted
	accepting           context.Context // ends with Close
	stop                context.CancelFunc
}

type accepted struct {
	link transport.Link
	err  error
}

func (t *laned) accept(from transport.Transport) {
	for {
		link, err := from.Accept(t.accepting)
		select {
		case t.accepted <- accepted{link, err}:
		case <-t.accepting.Done():
			if link != nil {
				_ = link.Close()
			}
			return
		}
	}
}

// Dial implements transport.Transport.
func (t *laned) Dial(ctx context.Context, to transport.Target) (transport.Link, error) {
	if to.Lane != transport.Control {
		return t.Transport.Dial(ctx, to)
	}
	next, err := nextPort(to.Endpoint)
	if err != nil {
		return nil, transport.Errorf(transport.ErrInvalid, "%v", err)
	}
	to.Endpoint = next
	return t.control.Dial(ctx, to)
}

// Accept implements transport.Transport.
func (t *laned) Accept(ctx context.Context) (transport.Link, error) {
	select {
	case a := <-t.accepted:
		return a.link, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-t.accepting.Done():
		return nil, transport.Errorf(transport.ErrClosed, "the transport is closed")
	}
}

// Close implements transport.Transport.
func (t *laned) Close() error {
	t.stop()
	return errors.Join(t.Transport.Close(), t.control.Close())
}
