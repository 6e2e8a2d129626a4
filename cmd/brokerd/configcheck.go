package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/brokerd/brokerd/core/config"
)

// checkSurroundings says what a configuration names that is not here. machine is
// this machine's memory in bytes, 0 where it is not known.
func checkSurroundings(c config.Loaded, machine int64) (problems []error, warnings []string) {
	told := func(name, format string, args ...any) error {
		origin := ""
		for _, v := range c.Values {
			if v.Name == name {
				origin = v.Origin
			}
		}
		return fmt.Errorf("%s: %s: %s", origin, name, fmt.Sprintf(format, args...))
	}
	if machine > 0 && c.Memory > machine {
		problems = append(problems, told("memory", "%s is more than this machine has, which is %s", config.FormatBytes(c.Memory), config.FormatBytes(machine)))
	}
	if dir := c.Plugins.Dir; dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			problems = append(problems, told("plugins.dir", "there is no directory %s", dir))
		}
	}
	if err := checkData(c); err != nil {
		problems = append(problems, told("data", "%s", err))
	}
	for _, name := range c.Storage.Names() {
		store := c.Storage.Stores[name]
		if _, err := c.ResolveReferences(store.Config); err != nil {
			warnings = append(warnings, told("storage.stores", "store %s: %s", name, err).Error())
		}
		if err := checkStore(c, store); err != nil {
			problems = append(problems, told("storage.stores", "store %s: %s", name, err))
		}
	}
	if c.Transport.Used() {
		if _, err := c.ResolveReferences(c.Transport.Config); err != nil {
			warnings = append(warnings, told("transport.config", "%s", err).Error())
		}
		if err := checkTransport(c); err != nil {
			problems = append(problems, told("transport.config", "%s", err))
		}
	}
	return problems, warnings
}

// checkStore looks for a store's plugin, for its keys among those that the plugin
// knows, and for its directory, where that can be told without running it.
func checkStore(c config.Loaded, store config.Store) error {
	var known []string
	provider, builtin := builtinPlugins()[store.Plugin]
	if builtin {
		for _, s := range provider.Info().Settings {
			known = append(known, s.Name)
		}
	}
	if asIs, err := checkPlugin(c, store.Plugin, store.Config, builtinNames(), known); asIs || err != nil {
		return err
	}
	return checkStorePath(c, store)
}

// checkTransport does the same for the plugin that carries messages between brokers.
func checkTransport(c config.Loaded) error {
	var known []string
	if provider, builtin := builtinTransports()[c.Transport.Plugin]; builtin {
		for _, s := range provider.Info().Settings {
			known = append(known, s.Name)
		}
	}
	_, err := checkPlugin(c, c.Transport.Plugin, c.Transport.Config, slices.Sorted(maps.Keys(builtinTransports())), known)
	return err
}

// checkPlugin looks for a plugin, and for its section's keys among those that it knows,
// which are not known of one that is no built-in one: then it is taken as it is.
func checkPlugin(c config.Loaded, plugin string, section json.RawMessage, builtin, known []string) (asIs bool, err error) {
	if c.Plugins.Dir != "" {
		path := filepath.Join(c.Plugins.Dir, plugin)
		info, err := os.Stat(path)
		switch {
		case err == nil && info.Mode().IsRegular() && info.Mode()&0o111 == 0:
			return false, fmt.Errorf("%s is there, but may not be executed; chmod +x it", path)
		case err == nil:
			return true, nil // `brokerd plugin check` asks it
		case !errors.Is(err, fs.ErrNotExist):
			return false, fmt.Errorf("look for its plugin: %w", err)
		}
	}
	if !slices.Contains(builtin, plugin) {
		return false, fmt.Errorf("there is no plugin %s; those built in are %s, others are executables in plugins.dir", plugin, strings.Join(builtin, ", "))
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(section, &keys); err != nil {
		return false, fmt.Errorf("its config is not a mapping: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !slices.Contains(known, key) {
			return false, fmt.Errorf("plugin %s has no setting %q; it has %s", plugin, key, strings.Join(known, ", "))
		}
	}
	return false, nil
}

// memoryOfMachine asks Linux; elsewhere it is not known, and 0.
func memoryOfMachine() int64 {
	content, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) >= 2 && fields[0] == "MemTotal:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}
