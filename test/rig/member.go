package rig

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Member is one of several brokers that are started each by itself, as on servers.
type Member struct {
	Number     int    // from 1 on
	Data       string // its directory
	Clients    string // host:port where it listens for clients
	Advertised string // host:port that clients are told; empty: Clients
	Peers      string // host:port where it listens for the other brokers; empty: it is alone
	Reached    string // host:port that those are told; empty: Peers
	Seeds      []string
	Secret     string // what the brokers know each other by, or
	SecretFile string // the file that it is in
}

// Settings are the member's, as NAME=value, and further ones.
func (m Member) Settings(more ...string) []string {
	pairs := []string{"node.id=" + strconv.Itoa(m.Number), "data=" + m.Data, "listeners=PLAINTEXT://" + m.Clients}
	if m.Advertised != "" {
		pairs = append(pairs, "advertised.listeners=PLAINTEXT://"+m.Advertised)
	}
	if m.Peers != "" {
		config, err := json.Marshal(struct {
			Listen     string `json:"listen"`
			Advertise  string `json:"advertise,omitempty"`
			Secret     string `json:"secret,omitempty"`
			SecretFile string `json:"secret_file,omitempty"`
		}{m.Peers, m.Reached, m.Secret, m.SecretFile})
		if err != nil {
			panic(fmt.Sprintf("rig: strings cannot be encoded: %v", err))
		}
		pairs = append(pairs, "cluster.seeds="+strings.Join(m.Seeds, ","), "transport.plugin=transport-tcp", "transport.config="+string(config))
	}
	return append(pairs, more...)
}

// Set are the arguments of a broker with these settings, NAME=value.
func Set(pairs []string) []string {
	var args []string
	for _, pair := range pairs {
		args = append(args, "--set", pair)
	}
	return args
}
