package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// dockerTimeout bounds one call of docker: a broker stops and starts in seconds.
const dockerTimeout = startTimeout + stopTimeout

// startDocker puts a program called docker into the run's bin, by which a suite stops and
// starts the brokers of the session and reads what they printed. It asks this process,
// whose children they are.
func startDocker(s *session) (*http.Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(s.dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return nil, err
	}
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' docker %s \"$@\"\n", self, l.Addr())
	if err := os.WriteFile(filepath.Join(bin, "docker"), []byte(script), 0o755); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{act}/{broker}", func(w http.ResponseWriter, r *http.Request) {
		if err := s.docker(r.Context(), w, r.PathValue("act"), r.PathValue("broker")); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(l) }() // until Close
	return server, nil
}

// docker does what one call asks for.
func (s *session) docker(ctx context.Context, w http.ResponseWriter, act, broker string) error {
	n, err := strconv.Atoi(broker)
	if err != nil {
		return err
	}
	switch act {
	case "stop":
		return s.cluster.stopBroker(n)
	case "start":
		return s.cluster.startBroker(ctx, n)
	case "logs":
		b, err := s.cluster.broker(n)
		if err != nil {
			return err
		}
		printed, err := os.ReadFile(b.Output)
		if err == nil {
			_, err = w.Write(printed)
		}
		return err
	}
	return fmt.Errorf("docker compose %s is not known here", act)
}

// dockerCall is `docker compose stop|start|logs ... kafka-N`, as a suite calls it.
func dockerCall(ctx context.Context, server string, args []string) error {
	if len(args) < 3 || args[0] != "compose" {
		return fmt.Errorf("docker %s is not known here", strings.Join(args, " "))
	}
	ctx, cancel := context.WithTimeout(ctx, dockerTimeout)
	defer cancel()
	broker := strings.TrimPrefix(args[len(args)-1], "kafka-")
	printed, err := post(ctx, fmt.Sprintf("http://%s/%s/%s", server, args[1], broker), nil)
	if err == nil {
		_, err = os.Stdout.Write(printed)
	}
	return err
}
