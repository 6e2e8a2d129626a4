package storagetest_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
	"github.com/brokerd/brokerd/sdk/storage/memstore/memfiles"
	"github.com/brokerd/brokerd/sdk/storage/storagetest"
)

// broken is the reference store with one rule broken.
type broken struct {
	name string
	// caughtBy is the case that must fail: the one that names the rule.
	caughtBy string
	opt      memstore.Options
	// files makes it the reference of stores that lend files.
	files bool
	// timeout is for a store that does not answer.
	timeout time.Duration
	// wrap breaks a store; nil leaves it as it is.
	wrap func(inner storage.Store) storage.Store
	// provide breaks the provider's Open.
	provide func(*memstore.Provider, storage.Config) (storage.Store, storage.DirectoryID, error)
	// killed is told after a kill, with the stores that were killed. There is no
	// disk where files is set.
	killed func(disk *memstore.Disk, stores []storage.Store)
}

// brokenStores breaks each rule that is worth a case of its own.
func brokenStores() []broken {
	return slices.Concat(brokenOpening(), brokenAppends(), brokenParts(), brokenReads(), brokenChanges(), brokenPromises(),
		brokenFiles(), brokenGrants(), brokenGrantEnds(), brokenLeases())
}

// TestBrokenStoresAreCaught runs, on each broken store, the case that names its
// rule, which must fail.
func TestBrokenStoresAreCaught(t *testing.T) {
	known := map[string]bool{}
	for _, c := range storagetest.Cases() {
		if known[c.Name] || c.About == "" {
			t.Errorf("the case %q is named twice or says nothing about itself", c.Name)
		}
		known[c.Name] = true
	}
	for _, b := range brokenStores() {
		t.Run(b.name, func(t *testing.T) {
			if !known[b.caughtBy] {
				t.Fatalf("there is no case %q", b.caughtBy)
			}
			report := storagetest.Run(t.Context(), b.target(t), storagetest.Options{
				Filter:      func(name string) bool { return name == b.caughtBy },
				CaseTimeout: b.timeout,
			})
			result := report.Results[0]
			if result.Status != storagetest.Failed {
				t.Fatalf("the case %s %v", b.caughtBy, result.Status)
			}
			t.Logf("%s: %s", b.caughtBy, result.Message)
		})
	}
}

// TestEveryFilesCaseCanFail: for each case about files, some store is broken.
func TestEveryFilesCaseCanFail(t *testing.T) {
	caught := map[string]bool{}
	for _, b := range brokenStores() {
		caught[b.caughtBy] = true
	}
	for _, c := range storagetest.Cases() {
		if (c.Offers != storagetest.Offers{}) && !caught[c.Name] {
			t.Errorf("no store is broken so that %s fails", c.Name)
		}
	}
}

func (b broken) target(t *testing.T) storagetest.Target {
	if b.files {
		inner := memfiles.NewProvider(t.TempDir(), b.opt)
		hooks := storagetest.FilesHooks(inner)
		kill := hooks.Kill
		hooks.Kill = func(ctx context.Context, cfg storage.Config, stores []storage.Store) error {
			err := kill(ctx, cfg, stores)
			if b.killed != nil {
				b.killed(nil, stores)
			}
			return err
		}
		return storagetest.Direct(&brokenProvider{Provider: inner, open: inner.Open, broken: b}, storagetest.FreshMemory(), hooks)
	}
	inner := memstore.NewProvider(b.opt)
	hooks := storagetest.MemoryHooks(inner)
	kill := hooks.Kill
	hooks.Kill = func(ctx context.Context, cfg storage.Config, stores []storage.Store) error {
		if err := kill(ctx, cfg, stores); err != nil {
			return err
		}
		if b.killed == nil {
			return nil
		}
		disk, err := inner.DiskOf(cfg.Settings)
		if err == nil {
			b.killed(disk, stores)
		}
		return err
	}
	open := inner.Open
	if b.provide != nil {
		open = func(_ context.Context, cfg storage.Config) (storage.Store, storage.DirectoryID, error) {
			return b.provide(inner, cfg)
		}
	}
	return storagetest.Direct(&brokenProvider{Provider: inner, open: open, broken: b}, storagetest.FreshMemory(), hooks)
}

type brokenProvider struct {
	storage.Provider
	open   func(context.Context, storage.Config) (storage.Store, storage.DirectoryID, error)
	broken broken
}

func (p *brokenProvider) Open(ctx context.Context, cfg storage.Config) (storage.Store, storage.DirectoryID, error) {
	store, dir, err := p.open(ctx, cfg)
	if err != nil || p.broken.wrap == nil {
		return store, dir, err
	}
	return p.broken.wrap(store), dir, nil
}

// reopened runs work on log id of a disk whose store was killed.
func reopened(disk *memstore.Disk, id storage.LogID, work func(store storage.Store, r storage.OpenResult)) {
	ctx := context.Background()
	identity := storage.Identity{ClusterID: "storagetest", NodeID: 1}
	store, _, err := memstore.Open(disk, storage.Config{Identity: identity}, memstore.Options{})
	if err != nil {
		panic(err)
	}
	defer store.Kill()
	r := store.Open(ctx, []storage.OpenSpec{{ID: id, Create: true, LeaderEpoch: 1 << 20}})[0]
	if r.Err != nil {
		panic(r.Err)
	}
	work(store, r)
}

// TestNotApplicableIsNotPassed runs the kit on a target that can only open.
func TestNotApplicableIsNotPassed(t *testing.T) {
	target := storagetest.Direct(memstore.NewProvider(memstore.Options{}), storagetest.FreshMemory(), storagetest.Hooks{})
	report := storagetest.Run(t.Context(), target, storagetest.Options{})
	if !report.OK() {
		t.Fatalf("the kit fails on the reference store without abilities: %+v", report.Results)
	}
	cases := map[string]storagetest.Case{}
	for _, c := range storagetest.Cases() {
		cases[c.Name] = c
	}
	for _, result := range report.Results {
		c := cases[result.Name]
		needs := c.Needs != storagetest.Abilities{} || c.Offers != storagetest.Offers{}
		if needs != (result.Status == storagetest.NotApplicable) || needs != (result.Message != "") {
			t.Errorf("%s needs %+v, asks for %+v, and is %v: %s", result.Name, c.Needs, c.Offers, result.Status, result.Message)
		}
	}
}

// TestReportNeedsAPass checks that a run in which nothing passed is no success.
func TestReportNeedsAPass(t *testing.T) {
	none := storagetest.Report{Results: []storagetest.Result{{Status: storagetest.NotApplicable}}}
	if none.OK() {
		t.Error("a report without a passed case is OK")
	}
	failed := storagetest.Report{Results: []storagetest.Result{{Status: storagetest.Passed}, {Status: storagetest.Failed}}}
	if failed.OK() {
		t.Error("a report with a failed case is OK")
	}
}
