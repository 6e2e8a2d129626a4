package plugin

import (
	"context"
	"fmt"

	pluginv1 "github.com/brokerd/brokerd/sdk/proto/plugin/v1"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/transport"
)

// Info is what a plugin of any kind says of itself.
type Info struct {
	Kind    string // KindStorage, KindTransport, or one that is not known here
	Name    string // as in the configuration: storage-file
	Version string
	About   string // one sentence
	// Settings are the keys that its section of the configuration may have.
	Settings []Setting
}

// Setting describes one key of a plugin's configuration.
type Setting struct {
	Name    string
	About   string
	Default string
	// Secret values are never logged nor shown.
	Secret bool
}

// StorageInfo is what a store's plugin says of itself.
func StorageInfo(i storage.Info) Info {
	out := Info{Kind: KindStorage, Name: i.Name, Version: i.Version, About: i.About}
	for _, s := range i.Settings {
		out.Settings = append(out.Settings, Setting(s))
	}
	return out
}

// TransportInfo is what a transport's plugin says of itself.
func TransportInfo(i transport.Info) Info {
	out := Info{Kind: KindTransport, Name: i.Name, Version: i.Version, About: i.About}
	for _, s := range i.Settings {
		out.Settings = append(out.Settings, Setting(s))
	}
	return out
}

func infoToProto(i Info) *pluginv1.InfoResponse {
	m := &pluginv1.InfoResponse{Kind: i.Kind, Name: i.Name, Version: i.Version, About: i.About}
	for _, s := range i.Settings {
		m.Settings = append(m.Settings, &pluginv1.Setting{
			Name: s.Name, About: s.About, Default: s.Default, Secret: s.Secret,
		})
	}
	return m
}

func infoFromProto(m *pluginv1.InfoResponse) Info {
	i := Info{Kind: m.GetKind(), Name: m.GetName(), Version: m.GetVersion(), About: m.GetAbout()}
	for _, s := range m.GetSettings() {
		i.Settings = append(i.Settings, Setting{
			Name: s.GetName(), About: s.GetAbout(), Default: s.GetDefault(), Secret: s.GetSecret(),
		})
	}
	return i
}

// Info asks the plugin what it is.
func (c *Client) Info(ctx context.Context) (Info, error) {
	ctx, cancel := withDefault(ctx, c.callTimeout)
	defer cancel()
	m, err := c.plugin.Info(ctx, &pluginv1.InfoRequest{})
	if err != nil {
		return Info{}, callError(ctx, "ask the plugin what it is", err)
	}
	return infoFromProto(m), nil
}

// expect asks the plugin whether it is of a kind, and says in one sentence that it is not.
func (c *Client) expect(ctx context.Context, kind string) (wrong string, err error) {
	i, err := c.Info(ctx)
	if err != nil || i.Kind == kind {
		return "", err
	}
	return fmt.Sprintf("plugin %s is of kind %q, and one of kind %q is needed here", i.Name, i.Kind, kind), nil
}
