package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/brokerd/brokerd/test/ports"
)

// sarama is the functional tests of IBM/sarama: five brokers, each behind a relay of
// toxiproxy's that the tests disturb. They also stop and start brokers, by calls of
// docker, for which this command stands in.
type sarama struct{ goSuite }

func saramaSuite() sarama {
	return sarama{goSuite{
		module: "github.com/IBM/sarama", version: "v1.61.1", packages: []string{"."}, tags: "functional",
		stall: 3 * time.Minute, readdress: readdressSarama,
	}}
}

func saramaSettings() []string {
	return []string{
		"broker.rack={n}", "default.replication.factor=2", "min.insync.replicas=1", "offsets.topic.replication.factor=2",
		"transaction.state.log.replication.factor=2", "auto.create.topics.enable=false",
	}
}

func (x sarama) run(ctx context.Context, s *session) (_ results, err error) {
	relays, err := startToxiproxy(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, relays.stop()) }()
	if err := s.cluster.warm(ctx); err != nil {
		return nil, err
	}
	docker, err := startDocker(s)
	if err != nil {
		return nil, err
	}
	defer func() { _ = docker.Close() }() // no call is under way
	x.prepare = func(string, *session) ([]string, string, error) {
		return []string{
			"KAFKA_VERSION=" + kafkaVersion, "TOXIPROXY_ADDR=" + relays.api,
			"PATH=" + filepath.Join(s.dir, "bin") + ":" + os.Getenv("PATH"),
		}, "", nil
	}
	return x.goSuite.run(ctx, s)
}

// readdressSarama writes the relays' addresses into the tests, which know them by their
// numbers.
func readdressSarama(dir string, s *session) error {
	path := filepath.Join(dir, "functional_test.go")
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	const written = `fmt.Sprintf("127.0.0.1:%d", 29090+i)`
	if !bytes.Contains(data, []byte(written)) {
		return fmt.Errorf("no %s in %s", written, path)
	}
	var quoted []string
	for _, a := range s.addresses {
		quoted = append(quoted, strconv.Quote(a.String()))
	}
	list := "[]string{" + strings.Join(quoted, ", ") + "}[i-1]"
	return os.WriteFile(path, bytes.ReplaceAll(data, []byte(written), []byte(list)), 0o644)
}

// toxiproxy is a toxiproxy that runs, with a relay to each broker.
type toxiproxy struct {
	cmd *exec.Cmd
	api string // its URL
}

func startToxiproxy(ctx context.Context, s *session) (*toxiproxy, error) {
	path, err := s.toolPath("toxiproxy")
	if err != nil {
		return nil, err
	}
	found, err := ports.Free(1)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(s.dir, "toxiproxy.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own descriptor
	cmd := exec.Command(path, "-host", "127.0.0.1", "-port", strconv.Itoa(found[0]))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start toxiproxy: %w", err)
	}
	t := &toxiproxy{cmd: cmd, api: fmt.Sprintf("http://127.0.0.1:%d", found[0])}
	for i, p := range s.places {
		if err := t.relay(ctx, i+1, p); err != nil {
			return nil, errors.Join(fmt.Errorf("%w; see %s", err, log.Name()), t.stop())
		}
	}
	return t, nil
}

// relay makes the relay to broker n, as soon as toxiproxy answers.
func (t *toxiproxy) relay(ctx context.Context, n int, p place) error {
	body, err := json.Marshal(map[string]any{
		"name": fmt.Sprintf("kafka%d", n), "listen": p.advertised.String(), "upstream": p.bind.String(), "enabled": true,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		_, err := post(ctx, t.api+"/proxies", body)
		var refused net.Error // nobody listens yet
		if err == nil || !errors.As(err, &refused) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("toxiproxy does not answer: %w", err)
		case <-tick.C:
		}
	}
}

func (t *toxiproxy) stop() error {
	err := t.cmd.Process.Kill() // it keeps nothing
	_ = t.cmd.Wait()
	return err
}

// post sends a request and returns the body of the answer; a status above 299 is an error.
func post(ctx context.Context, url string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode > 299 {
		err = fmt.Errorf("POST %s: %s: %s", url, resp.Status, answer)
	}
	return answer, err
}
