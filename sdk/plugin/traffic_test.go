package plugin_test

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/plugin/internal/filestore"
	"github.com/brokerd/brokerd/sdk/plugin/plugintest"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// counted opens a store over a carrier whose traffic is counted.
func counted(t *testing.T, p storage.Provider, carrier plugin.Carrier) (*plugin.Store, *plugin.Counters, *plugintest.Link) {
	t.Helper()
	link, err := plugintest.Connect(p, carrier)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Break)
	c := &plugin.Counters{}
	link.CountWith(c)
	s, _, err := link.Store(t.Context(), fileConfig(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	return s, c, link
}

// Every batch is counted once, as the way that it went, whichever carrier there is.
func TestTrafficIsCountedByItsWay(t *testing.T) {
	const n = 300
	size := int64(len(appendOf(1, 0, 200).Data[0]))
	for _, allowed := range []plugin.Carrier{plugin.CarrierFiles, plugin.CarrierSocket, plugin.CarrierGRPC} {
		t.Run(allowed.String(), func(t *testing.T) {
			s, c, _ := counted(t, filestore.NewProvider(filestore.Options{}), allowed)
			if s.Carrier() != allowed {
				t.Errorf("the carrier is %v", s.Carrier())
			}
			h := openLog(t, s, 0).Handle
			fill(t, s, h, 0, n)
			if err := readAll(t.Context(), s, h, 0, n); err != nil { // tells the plugin of all
				t.Fatal(err)
			}
			got := c.Traffic()
			if sum := got.Granted.Batches + got.Called.Batches; sum != n || got.Granted.Bytes+got.Called.Bytes != n*size {
				t.Errorf("%d batches, want %d: %+v", sum, n, got)
			}
			if read := got.LeasedBytes + got.CalledBytes; read != n*size {
				t.Errorf("%d bytes were read, want %d: %+v", read, n*size, got)
			}
			files := allowed == plugin.CarrierFiles
			if (got.Granted.Batches > n/2) != files || (got.GrantsHeld() == 1) != files || (got.LeasedBytes > 0) != files || (s.Held().Leases > 0) != files {
				t.Errorf("%+v, %+v", got, s.Held())
			}
			// A call is counted as sent when the socket has taken it, which may be after its
			// answer has come.
			for end := time.Now().Add(10 * time.Second); got.Sent.Units != got.Received.Units && time.Now().Before(end); got = c.Traffic() {
				time.Sleep(time.Millisecond)
			}
			if got.Sent.Units == 0 || got.Sent.Units != got.Received.Units || got.Sent.Bytes < got.Called.Bytes || got.Received.Bytes < got.CalledBytes {
				t.Errorf("sent %+v, received %+v", got.Sent, got.Received)
			}
		})
	}
}

// A plugin that lends nothing has no better carrier than the socket.
func TestCarrierIsWhatIsUsed(t *testing.T) {
	link, err := plugintest.Connect(memstore.NewProvider(memstore.Options{}), plugin.CarrierFiles)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Break)
	s, _, err := link.Store(t.Context(), config())
	if err != nil {
		t.Fatal(err)
	}
	if s.Carrier() != plugin.CarrierSocket {
		t.Errorf("the carrier is %v", s.Carrier())
	}
}

// Each grant ends once, and is counted with what ended it.
func TestGrantsAreCountedByTheirEnd(t *testing.T) {
	for _, c := range []struct {
		why plugin.GrantEnd
		opt filestore.Options
		end func(t *testing.T, s *plugin.Store, h storage.Handle, link *plugintest.Link)
	}{
		{plugin.GrantOver, filestore.Options{OverAfter: 1}, func(t *testing.T, s *plugin.Store, h storage.Handle, _ *plugintest.Link) {
			s.Flush(t.Context(), []storage.Handle{h}) // which tells
			fill(t, s, h, 60, 70)
		}},
		{plugin.GrantUnfit, filestore.Options{GrantBytes: 4 << 10}, func(*testing.T, *plugin.Store, storage.Handle, *plugintest.Link) {}},
		{plugin.GrantChange, filestore.Options{}, func(t *testing.T, s *plugin.Store, h storage.Handle, _ *plugintest.Link) {
			if _, err := s.Trim(t.Context(), h, 5); err != nil {
				t.Fatal(err)
			}
		}},
		{plugin.GrantLost, filestore.Options{}, func(_ *testing.T, s *plugin.Store, _ storage.Handle, link *plugintest.Link) {
			link.Break()
			s.Abandon()
		}},
	} {
		t.Run(c.why.String(), func(t *testing.T) {
			s, counters, link := counted(t, filestore.NewProvider(c.opt), plugin.CarrierFiles)
			h := openLog(t, s, 0).Handle
			fill(t, s, h, 0, 60)
			c.end(t, s, h, link)
			got := counters.Traffic()
			ended := int64(0)
			for _, n := range got.GrantsEnded {
				ended += n
			}
			if got.GrantsEnded[c.why] == 0 || ended != got.GrantsEnded[c.why] || got.GrantsBegun-ended != got.GrantsHeld() {
				t.Errorf("%v of %d, held %d", got.Ended(), got.GrantsBegun, got.GrantsHeld())
			}
		})
	}
}

// A lease whose bytes are not what was said is counted with what was wrong, and the
// plugin answers.
func TestDoubtedLeasesAreCounted(t *testing.T) {
	for _, c := range []struct {
		why  plugin.LeaseDoubt
		make func(dir string) func(*storage.Lease) error
	}{
		{plugin.DoubtRead, func(string) func(*storage.Lease) error {
			return func(l *storage.Lease) error { l.Limit += 1 << 20; l.End += 1000; return nil }
		}},
		{plugin.DoubtOrder, func(string) func(*storage.Lease) error {
			return func(l *storage.Lease) error {
				l.Pos, l.Gaps = l.Pos+(l.Limit-l.Pos)/50*10, false
				return nil
			}
		}},
		{plugin.DoubtBatch, func(dir string) func(*storage.Lease) error {
			return func(l *storage.Lease) error {
				b, err := os.ReadFile(l.File.Name())
				if err != nil {
					return err
				}
				b[l.Pos+recordbatch.HeaderBytes+10] ^= 1
				path := filepath.Join(dir, "other")
				if err := os.WriteFile(path, b, 0o600); err != nil {
					return err
				}
				_ = l.File.Close()
				l.File, err = os.Open(path)
				return err
			}
		}},
	} {
		t.Run(c.why.String(), func(t *testing.T) {
			s, counters, _ := counted(t, filestore.NewProvider(filestore.Options{Leased: c.make(t.TempDir())}), plugin.CarrierFiles)
			h := openLog(t, s, 0).Handle
			fill(t, s, h, 0, 50)
			if _, err := s.Read(t.Context(), storage.ReadRequest{Handle: h, UpTo: 50, MaxBytes: 1 << 20}); err != nil {
				t.Fatal(err)
			}
			if err := readAll(t.Context(), s, h, 0, 50); err != nil {
				t.Fatal(err)
			}
			got := counters.Traffic()
			if got.LeasesDoubted[c.why] == 0 || got.CalledBytes == 0 {
				t.Errorf("%v, %d bytes by calls", got.Doubted(), got.CalledBytes)
			}
		})
	}
}

// Appends that wait for the plugin are seen while they do.
func TestAppendsThatWaitAreSeen(t *testing.T) {
	var hold atomic.Pointer[chan struct{}]
	s, _, _ := counted(t, filestore.NewProvider(filestore.Options{Told: func(storage.AppendRequest) error {
		if c := hold.Load(); c != nil {
			<-*c
		}
		return nil
	}}), plugin.CarrierFiles)
	h := openLog(t, s, 0).Handle
	fill(t, s, h, 0, 50)
	held := make(chan struct{})
	hold.Store(&held)
	done := make(chan error, 3)
	for base := int64(50); base < 53; base++ {
		req := appendOf(h, base, 100)
		req.Require = storage.SurvivesMachine
		s.Append(t.Context(), req, func(_ storage.AppendResult, err error) { done <- err })
	}
	if n := s.Held().Appends; n != 3 {
		t.Errorf("%d appends wait, want 3", n)
	}
	close(held)
	for range 3 {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("no answer")
		}
	}
	if n := s.Held().Appends; n != 0 {
		t.Errorf("%d appends wait after they were answered", n)
	}
}

// What is sent from a file is counted apart from what is read, and so is that it could
// not be.
func TestSectionsAreCounted(t *testing.T) {
	s, counters, _ := counted(t, filestore.NewProvider(filestore.Options{}), plugin.CarrierFiles)
	h := openLog(t, s, 0).Handle
	fill(t, s, h, 0, 2000)
	sectionsOf(t, s, h, 2000, 200<<10)
	before := counters.Traffic()
	section := mustSection(t, s, storage.ReadRequest{Handle: h, UpTo: 2000, MaxBytes: 200 << 10})
	section.Owner.Release(true)
	now := counters.Traffic()
	if now.SectionBytes-before.SectionBytes != int64(section.Bytes) || now.LeasedBytes != before.LeasedBytes || now.LeasesDoubted[plugin.DoubtRead] != 1 {
		t.Errorf("a section of %d bytes: from %+v to %+v", section.Bytes, before, now)
	}
}
