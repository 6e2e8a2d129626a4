package pluginhost

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/plugin/plugintest"
	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/transporttest"
)

// CheckTransport runs the conformance kit for transports against a plugin, each node of it a
// process as a broker would start it. target is a plugin's name, or the path of an executable
// with a separator in it. settings is the section of the configuration of each node, as JSON,
// with which it listens where nobody else does; FreshName in it is another word for each.
// outsider, which may be empty, is that of nodes which cannot prove what the others demand. The
// error says why nothing could be run; what the kit found is in the report.
func (h *Host) CheckTransport(ctx context.Context, target string, settings, outsider []byte, opt transporttest.Options) (transporttest.Report, error) {
	launch, err := h.find(target)
	if err != nil {
		return transporttest.Report{}, err
	}
	if !json.Valid(settings) || len(outsider) > 0 && !json.Valid(outsider) {
		return transporttest.Report{}, fmt.Errorf("check plugin %s: the settings are not JSON", target)
	}
	info, err := h.Probe(ctx, target)
	if err != nil {
		return transporttest.Report{}, err
	}
	if info.Kind != plugin.KindTransport {
		return transporttest.Report{}, fmt.Errorf("check plugin %s: it is of kind %q, and no transport", target, info.Kind)
	}
	var nodes atomic.Int64
	with := func(settings []byte) func(transport.Identity) ([]byte, error) {
		return func(transport.Identity) ([]byte, error) {
			name := "node-" + strconv.FormatInt(nodes.Add(1), 10)
			return []byte(strings.ReplaceAll(string(settings), FreshName, name)), nil
		}
	}
	cfg := plugintest.TransportConfig{Name: target, Launch: launch, Settings: with(settings)}
	if len(outsider) > 0 {
		cfg.Outsider = with(outsider)
	}
	return transporttest.Check(ctx, plugintest.Transport(plugin.CarrierFiles, cfg), opt), nil
}
