package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/viper"
)

// Sources are the layers over the defaults; a later one wins: the file, the
// environment (BROKERD_ and the name in capitals, with _ for each dot), flags.
type Sources struct {
	// File is the name of a YAML file; empty: none.
	File string
	// Content is the file's content where it was read already; File then only
	// names it.
	Content []byte
	// Environment is read where it is set (os.Environ); nil: not looked at.
	Environment []string
	Overrides   []Override
}

// Override is a value from the command line.
type Override struct {
	Flag  string // as the user wrote it, for the origin: --port
	Name  string // the setting
	Value string
}

// Loaded is a configuration with its history.
type Loaded struct {
	Config
	// Values are all settings in the table's order, secrets masked.
	Values []Value
	// Warnings are about keys without effect.
	Warnings []string
}

// Value is one setting as it is in force.
type Value struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin"` // default, file:line, env NAME or flag --x
	About  string `json:"about"`
}

// keyDelimiter is what viper splits keys at: nothing that a name has.
const keyDelimiter = "\x00"

// Load layers the sources over the defaults and validates the result. The error
// tells everything that is wrong at once, each with its place.
func Load(src Sources) (Loaded, error) {
	l := loader{
		src:   src,
		file:  reader{file: src.File, table: make(map[string]setting), values: make(map[string]found)},
		viper: viper.NewWithOptions(viper.KeyDelimiter(keyDelimiter)),
		out:   Loaded{Config: Default()},
	}
	for _, s := range settings() {
		l.file.table[s.name] = s
		for _, c := range s.coarser {
			l.file.table[c.name] = s
		}
	}
	if err := l.layer(); err != nil {
		return Loaded{}, err
	}
	for _, s := range settings() {
		l.settle(s)
	}
	l.fitMemory()
	problems := slices.Concat(l.file.problems, l.problems)
	if len(problems) == 0 {
		problems = l.validate()
	}
	slices.SortStableFunc(problems, func(a, b error) int { return cmp.Compare(l.line(a), l.line(b)) })
	l.out.Warnings = slices.Concat(l.file.warnings, l.warnings)
	return l.out, errors.Join(problems...)
}

// line is the line of the file that a problem begins with; those of other
// sources come last.
func (l *loader) line(problem error) int {
	rest, inFile := strings.CutPrefix(problem.Error(), l.file.file+":")
	digits, _, _ := strings.Cut(rest, ":")
	if n, err := strconv.Atoi(digits); inFile && err == nil {
		return n
	}
	return math.MaxInt
}

type loader struct {
	src      Sources
	file     reader
	viper    *viper.Viper
	env      map[string]string
	flags    map[string]string // setting to flag
	out      Loaded
	problems []error
	warnings []string
}

// layer gives every source to viper.
func (l *loader) layer() error {
	content := l.src.Content
	if content == nil && l.src.File != "" {
		var err error
		if content, err = os.ReadFile(l.src.File); err != nil {
			return fmt.Errorf("read the configuration: %w", err)
		}
	}
	l.file.read(content)
	fromFile := make(map[string]any, len(l.file.values))
	for name, v := range l.file.values {
		fromFile[name] = v.text
	}
	if err := l.viper.MergeConfigMap(fromFile); err != nil {
		return fmt.Errorf("layer the configuration file: %w", err)
	}
	l.readEnvironment()
	l.flags = make(map[string]string, len(l.src.Overrides))
	for _, o := range l.src.Overrides {
		if _, ok := l.file.table[o.Name]; !ok {
			l.problems = append(l.problems, unknownOverride(o, l.file.names()))
			continue
		}
		l.viper.Set(o.Name, o.Value)
		l.flags[o.Name] = o.Flag
	}
	return nil
}

func unknownOverride(o Override, names []string) error {
	if near := suggest(o.Name, names); near != "" {
		return fmt.Errorf("flag %s: unknown key %q; did you mean %q?", o.Flag, o.Name, near)
	}
	return fmt.Errorf("flag %s: unknown key %q; `brokerd config show` lists every key", o.Flag, o.Name)
}

// readEnvironment layers variables between the file and the flags. A variable
// with our prefix that is no setting is a warning, not an error: orchestrators
// put variables named after services into every container's environment.
func (l *loader) readEnvironment() {
	names := make(map[string]string, len(l.file.table))
	for name := range l.file.table {
		names[envName(name)] = name
	}
	l.env = make(map[string]string)
	for _, pair := range l.src.Environment {
		key, value, _ := strings.Cut(pair, "=")
		name, ok := names[key]
		switch {
		case ok && value != "":
			l.env[name] = value
		case !ok && strings.HasPrefix(key, envPrefix) && !injected(key):
			l.warnings = append(l.warnings, unknownVariable(key, names))
		}
	}
	slices.Sort(l.warnings)
	for name, value := range l.env {
		if _, flagged := l.flags[name]; !flagged {
			l.viper.Set(name, value)
		}
	}
}

// injected reports whether Kubernetes or Docker links put a variable there for
// a service that is named brokerd, or that it is for a plugin or a client.
func injected(key string) bool {
	for _, prefix := range []string{"SERVICE_", "PORT", "PLUGIN_", "NAME", "BOOTSTRAP_SERVER"} {
		if strings.HasPrefix(key, envPrefix+prefix) {
			return true
		}
	}
	return false
}

func unknownVariable(key string, names map[string]string) string {
	all := make([]string, 0, len(names))
	for variable := range names {
		all = append(all, strings.ToLower(variable))
	}
	slices.Sort(all)
	if near := suggest(strings.ToLower(key), all); near != "" {
		return fmt.Sprintf("env %s is no setting and has no effect; did you mean %s?", key, strings.ToUpper(near))
	}
	return fmt.Sprintf("env %s is no setting and has no effect", key)
}

// settle puts the value that wins into the Config, and notes its origin.
func (l *loader) settle(s setting) {
	name, unit := s.name, int64(1)
	origin := l.origin(s.name)
	for _, c := range s.coarser {
		if origin != originDefault {
			break
		}
		name, unit, origin = c.name, c.unit.Milliseconds(), l.origin(c.name)
	}
	f := s.field(&l.out.Config)
	if origin != originDefault {
		if err := l.parse(f, name, unit); err != nil {
			l.problems = append(l.problems, l.told(origin, name, err))
		}
		if name != s.name {
			origin += " " + name
		}
	}
	l.out.Values = append(l.out.Values, Value{Name: s.name, Value: f.format(), Origin: origin, About: s.about})
}

const originDefault = "default"

func (l *loader) origin(name string) string {
	if flag, ok := l.flags[name]; ok {
		return "flag " + flag
	}
	if _, ok := l.env[name]; ok {
		return "env " + envName(name)
	}
	if v, ok := l.file.values[name]; ok {
		return l.file.at(v.line)
	}
	return originDefault
}

func (l *loader) parse(f field, name string, unit int64) error {
	_, flagged := l.flags[name]
	_, fromEnv := l.env[name]
	if tree, ok := f.(structured); ok && !flagged && !fromEnv {
		return tree.parseNode(l.file.values[name].node)
	}
	text := l.viper.GetString(name)
	if unit == 1 {
		return f.parse(text)
	}
	n, err := parseMillis(text)
	if err != nil {
		return fmt.Errorf("%q is not a whole number", text)
	}
	if n > 0 {
		n *= unit
	}
	return f.parse(fmt.Sprint(n))
}

// told puts a place and a name before what is wrong.
func (l *loader) told(origin, name string, err error) error {
	var at *positioned
	if errors.As(err, &at) && at.line > 0 && strings.HasPrefix(origin, l.file.file+":") {
		origin = l.file.at(at.line)
	}
	return fmt.Errorf("%s: %s: %w", origin, name, err)
}

// fitMemory lowers the largest request and the number of connections to what a
// small memory can hold, unless the operator said how large they are: then it is
// for them to change.
func (l *loader) fitMemory() {
	server := &l.out.Server
	if n := l.out.Memory / RequestMemoryShare; server.RequestBytesMax > n && l.fits("socket.request.max.bytes", n) {
		server.RequestBytesMax = n
	}
	if n := l.out.Memory / ConnectionMemoryBytes; int64(server.ConnectionsMax) > n && l.fits("max.connections", n) {
		server.ConnectionsMax = int(n)
	}
}

// fits replaces the value of a setting that nobody set, and says whether it did.
func (l *loader) fits(name string, n int64) bool {
	for i, v := range l.out.Values {
		if v.Name == name && v.Default() {
			l.out.Values[i].Value = strconv.FormatInt(n, 10)
			return true
		}
	}
	return false
}

// validate says of each problem where the value came from.
func (l *loader) validate() []error {
	problems := l.out.problems()
	out := make([]error, 0, len(problems))
	for _, p := range problems {
		origin := originDefault
		for _, v := range l.out.Values {
			if v.Name == p.name {
				origin = v.Origin
			}
		}
		out = append(out, fmt.Errorf("%s: %s: %s", origin, p.name, p.msg))
	}
	return out
}

// TopicDefaults are the properties that the operator set and that stand in for
// topic settings, by their broker-level names. What was not said is not in it:
// topicconfig has the defaults.
func (l Loaded) TopicDefaults() map[string]string {
	out := make(map[string]string)
	for _, v := range l.Values {
		if v.Origin == originDefault {
			continue
		}
		if _, ok := l.Topics.Properties[v.Name]; ok || v.Name == flushInterval {
			out[v.Name] = v.Value
		}
	}
	return out
}

// Default reports whether nobody said anything of the setting.
func (v Value) Default() bool { return v.Origin == originDefault }
