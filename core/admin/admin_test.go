package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestServer(t *testing.T) {
	defer goleak.VerifyNone(t)
	var ready atomic.Bool
	want := Status{ClusterID: "c", NodeID: 1, Listeners: []ListenerStatus{{Name: "PLAINTEXT"}}, Warnings: []string{"w"}}
	s := New("127.0.0.1:0", Deps{
		Status: func(context.Context) Status { return want },
		Ready: func() error {
			if !ready.Load() {
				return errors.New("waiting for store main")
			}
			return nil
		},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "m 1") }),
		Logger:  slog.New(slog.DiscardHandler),
	})
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(method, path string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr().String()+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, strings.TrimSpace(string(body))
	}
	check := func(method, path string, code int, body string) {
		t.Helper()
		gotCode, got := ask(method, path)
		if gotCode != code || (body != "" && got != body) {
			t.Errorf("%s %s: %d %q, want %d %q", method, path, gotCode, got, code, body)
		}
	}
	check("GET", "/healthz", 200, "ok")
	check("GET", "/readyz", 503, "waiting for store main")
	ready.Store(true)
	check("GET", "/readyz", 200, "ready")
	check("GET", "/metrics", 200, "m 1")
	check("GET", "/v2/status", 404, "")
	check("POST", "/v1/status", 405, "")
	_, body := ask("GET", "/v1/status")
	var got Status
	if err := json.Unmarshal([]byte(body), &got); err != nil || !cmp.Equal(got, want) {
		t.Errorf("status %s, %v", body, err)
	}
	cancel()
	if err := <-ran; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// Whatever waits for the rest of the broker is told to stop in time.
func TestAnswersAreBounded(t *testing.T) {
	for _, path := range []string{"/metrics", "/v1/status"} {
		synctest.Test(t, func(t *testing.T) {
			s := New("", Deps{
				Status:  func(ctx context.Context) Status { <-ctx.Done(); return Status{} },
				Metrics: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
			})
			began := time.Now()
			s.routes().ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", path, http.NoBody))
			if took := time.Since(began); took != answerTimeout {
				t.Errorf("%s took %s", path, took)
			}
		})
	}
}

func TestAddressInUse(t *testing.T) {
	first := New("127.0.0.1:0", Deps{})
	if err := first.Listen(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.listener.Close() }()
	second := New(first.Addr().String(), Deps{})
	if err := second.Listen(); err == nil || !strings.Contains(err.Error(), first.Addr().String()) {
		t.Errorf("error %v", err)
	}
}
