package transporttest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
	"github.com/brokerd/brokerd/sdk/transport/transporttest"
)

// brokenProvider is the memory network's with another Info, or another Open.
type brokenProvider struct {
	transport.Provider
	info func(transport.Info) transport.Info
	open func(cfg transport.Config, open func(transport.Config) (transport.Transport, error)) (transport.Transport, error)
}

func (p brokenProvider) Info() transport.Info {
	if p.info == nil {
		return p.Provider.Info()
	}
	return p.info(p.Provider.Info())
}

func (p brokenProvider) Open(ctx context.Context, cfg transport.Config) (transport.Transport, error) {
	open := func(cfg transport.Config) (transport.Transport, error) { return p.Provider.Open(ctx, cfg) }
	if p.open == nil {
		return open(cfg)
	}
	return p.open(cfg, open)
}

func brokenProviders() []broken {
	provides := func(p brokenProvider) func(*testing.T, *transporttest.Target, *memnet.Network) {
		return func(_ *testing.T, target *transporttest.Target, network *memnet.Network) {
			p.Provider = network
			target.Provider = p
		}
	}
	type opens = func(transport.Config) (transport.Transport, error)
	return []broken{
		{name: "a plugin has no version", caughtBy: "provider-info", says: "leaves something out", aim: provides(brokenProvider{
			info: func(i transport.Info) transport.Info { i.Version = ""; return i },
		})},
		{name: "a setting is told twice", caughtBy: "provider-info", says: "told twice", aim: provides(brokenProvider{
			info: func(i transport.Info) transport.Info { i.Settings = append(i.Settings, i.Settings[0]); return i },
		})},
		{name: "unknown settings are passed over", caughtBy: "provider-open", says: "succeeded", aim: provides(brokenProvider{
			open: func(cfg transport.Config, open opens) (transport.Transport, error) {
				if strings.Contains(string(cfg.Settings), "no_such") {
					cfg.Settings = nil
				}
				return open(cfg)
			},
		})},
		{name: "unknown settings are not named", caughtBy: "provider-open", says: "not named", aim: provides(brokenProvider{
			open: func(cfg transport.Config, open opens) (transport.Transport, error) {
				opened, err := open(cfg)
				if err != nil {
					return nil, transport.Errorf(transport.ErrInvalid, "the settings are wrong")
				}
				return opened, nil
			},
		})},
		{name: "bad settings may be tried again", caughtBy: "provider-open", says: "want class", aim: provides(brokenProvider{
			open: func(cfg transport.Config, open opens) (transport.Transport, error) {
				opened, err := open(cfg)
				return opened, instead(transport.ErrInvalid, transport.ErrRetry)(err)
			},
		})},
	}
}
