package pluginhost

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/plugin/plugintest"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/storagetest"
)

// FreshDirectory stands, in the settings that Check is given, for a directory
// that is made anew for each case; FreshName for a word that is.
const (
	FreshDirectory = "{dir}"
	FreshName      = "{name}"
)

// Check runs the conformance kit for stores against a plugin, each opening a
// process as a broker would start it. target is a plugin's name, or the path of
// an executable with a separator in it. settings is the section of the
// configuration, as JSON; FreshDirectory or FreshName must be in it, so that
// each case has a place of its own. The error says why nothing could be run;
// what the kit found is in the report.
func (h *Host) Check(ctx context.Context, target string, settings []byte, opt storagetest.Options) (storagetest.Report, error) {
	launch, err := h.find(target)
	if err != nil {
		return storagetest.Report{}, err
	}
	if !json.Valid(settings) {
		return storagetest.Report{}, fmt.Errorf("check plugin %s: the settings are not JSON", target)
	}
	text := string(settings)
	if !strings.Contains(text, FreshDirectory) && !strings.Contains(text, FreshName) {
		return storagetest.Report{}, fmt.Errorf("check plugin %s: write %s or %s into the settings where each case is to have a place of its own",
			target, FreshDirectory, FreshName)
	}
	if _, err := h.Probe(ctx, target); err != nil {
		return storagetest.Report{}, err
	}
	root, err := os.MkdirTemp("", "plugin-check-")
	if err != nil {
		return storagetest.Report{}, fmt.Errorf("check plugin %s: %w", target, err)
	}
	defer func() { _ = os.RemoveAll(root) }() // a leftover in the temporary directory harms nobody
	cases := 0
	fresh := func() (storage.Config, error) {
		cases++
		name := "case-" + strconv.Itoa(cases)
		return freshConfig(text, name, filepath.Join(root, name))
	}
	run := func(carrier plugin.Carrier, lent bool) storagetest.Report {
		launch.Carrier = carrier
		opt := opt
		opt.Filter = only(opt.Filter, lent)
		return storagetest.Run(ctx, plugintest.Binary(plugintest.BinaryConfig{Name: target, Launch: launch, Fresh: fresh}), opt)
	}
	report := run(plugin.CarrierFiles, false)
	// What a store lends is the kit's own to use, in the cases that are about it.
	report.Results = append(report.Results, run(plugin.CarrierLent, true).Results...)
	return report, nil
}

// only limits filter, which may be nil, to cases about what is lent, or to the others.
func only(filter func(name string) bool, lent bool) func(name string) bool {
	about := map[string]bool{}
	for _, c := range storagetest.Cases() {
		about[c.Name] = c.Offers != storagetest.Offers{}
	}
	return func(name string) bool { return about[name] == lent && (filter == nil || filter(name)) }
}

// freshConfig makes a configuration that names an empty place.
func freshConfig(settings, name, dir string) (storage.Config, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return storage.Config{}, err
	}
	quoted, err := json.Marshal(dir)
	if err != nil {
		return storage.Config{}, err
	}
	settings = strings.ReplaceAll(settings, FreshDirectory, strings.Trim(string(quoted), `"`))
	settings = strings.ReplaceAll(settings, FreshName, name)
	return storage.Config{
		Settings:            []byte(settings),
		Identity:            storage.Identity{ClusterID: "plugin-check", NodeID: 1},
		ProposedDirectoryID: storage.DirectoryID{1},
	}, nil
}
