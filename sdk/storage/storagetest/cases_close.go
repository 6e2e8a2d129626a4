package storagetest

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/brokerd/brokerd/sdk/storage"
)

func closeCases() []Case {
	return []Case{
		{Name: "close", About: "Close completes appends in flight, flushes, and leaves handles that give ErrGone; twice is no error", run: closeHandles},
		{Name: "list", About: "List reports every log, open or not, with its label and bytes", run: listLogs},
		{Name: "delete", About: "a deleted log is fenced and not listed; made again, it is empty", run: deleteLog},
		{Name: "delete-kill", About: "a deleted log is not listed after a kill either", Needs: Abilities{Kill: true}, run: deleteKill},
		{Name: "shutdown", About: "after Shutdown every call gives ErrGone, and another opener finds everything", run: shutdown},
		{Name: "arguments", About: "bad arguments and unknown handles give errors, never a panic, and change nothing", run: badArguments},
		{Name: "cancelled", About: "a call whose context has ended has its effect or fails with ErrUnknown or ErrRetry", run: cancelled},
		{Name: "usage", About: "Usage and Capabilities are consistent", run: usage},
	}
}

func closeHandles(e *env) {
	r := e.log(0)
	b := e.batches(0, 100, 1)
	var flights []*pending
	for _, m := range b {
		flights = append(flights, e.begin(request(r.Handle, 1, m.BaseOffset, m)))
	}
	for i, err := range e.store.Close(e.ctx, []storage.Handle{r.Handle}) {
		e.must(err, fmt.Sprintf("close handle %d", i))
	}
	for i, p := range flights {
		select {
		case <-p.done:
			e.must(p.err, fmt.Sprintf("append %d, in flight when the handle was closed", i))
		case <-time.After(time.Second): // its completion may be on the way still
			e.failf("append %d was not completed by Close", i)
		}
	}
	_, err := e.tryAppend(request(r.Handle, 1, endOf(b, 0), e.batch(endOf(b, 0), 1, 1)))
	e.wantClass(err, "append through a closed handle", storage.ErrGone)
	_, err = e.store.Read(e.ctx, storage.ReadRequest{Handle: r.Handle, UpTo: 10, MaxBytes: 1000})
	e.wantClass(err, "read through a closed handle", storage.ErrGone)
	errs := e.store.Close(e.ctx, []storage.Handle{r.Handle})
	if len(errs) != 1 || errs[0] != nil {
		e.failf("closing twice gives %v", errs)
	}
	again := e.log(0)
	if again.Durable != again.LEO || again.Verdict != storage.VerdictIntact {
		e.failf("a closed log opens as durable up to %d of %d, verdict %d", again.Durable, again.LEO, again.Verdict)
	}
	e.checkOpened(again, "after Close", 0, endOf(b, 0), b)
}

func listLogs(e *env) {
	const logs = 12
	sizes := map[storage.LogID]int64{}
	for i := range logs {
		r := e.log(i)
		_, data := join(e.fill(r.Handle, 0, 3+i, 1))
		sizes[logID(i)] = int64(len(data))
		if i%2 == 0 {
			e.must(e.store.Close(e.ctx, []storage.Handle{r.Handle})[0], "close")
		}
	}
	check := func(when string) {
		infos, err := e.store.List(e.ctx)
		e.must(err, "list")
		seen := map[storage.LogID]bool{}
		for _, info := range infos {
			size, known := sizes[info.ID]
			if !known || seen[info.ID] {
				e.failf("%s: log %v is listed twice or was never made", when, info.ID)
			}
			seen[info.ID] = true
			if info.Bytes < size {
				e.failf("%s: log %s occupies %d bytes, with %d bytes of batches", when, info.Label, info.Bytes, size)
			}
			if info.Label == "" {
				e.failf("%s: log %v has no label", when, info.ID)
			}
		}
		if len(seen) != logs {
			e.failf("%s: %d logs are listed; want %d", when, len(seen), logs)
		}
	}
	check("half open")
	e.restart()
	check("after a restart, none open")
}

func deleteLog(e *env) {
	r, other := e.log(0), e.log(1)
	b := e.fill(r.Handle, 0, 5, 1)
	kept := e.fill(other.Handle, 0, 5, 1)
	e.must(e.store.PutBlob(e.ctx, r.Handle, "state", storage.Blob{Offset: 1, Data: []byte("x")}), "put a blob")
	e.must(e.store.Delete(e.ctx, logID(0)), "delete")
	e.checkGone(0, "after Delete")
	_, err := e.tryAppend(request(r.Handle, 1, endOf(b, 0), e.batch(endOf(b, 0), 1, 1)))
	e.wantClass(err, "append to a deleted log", storage.ErrFenced, storage.ErrGone)
	_, err = e.tryOpen(storage.OpenSpec{ID: logID(0), LeaderEpoch: 1})
	e.wantClass(err, "open a deleted log", storage.ErrGone)
	e.must(e.store.Delete(e.ctx, logID(0)), "delete twice")
	e.must(e.store.Delete(e.ctx, logID(99)), "delete what never was")

	e.restart()
	e.checkGone(0, "after Delete and a restart")
	again := e.logAt(0, 0) // a new log has seen no epoch
	e.checkOpened(again, "made again", 0, 0, nil)
	if _, found, err := e.store.GetBlob(e.ctx, again.Handle, "state"); found || err != nil {
		e.failf("a log made again has the deleted one's blob (found %v, %v)", found, err)
	}
	fresh := e.fill(again.Handle, 0, 4, 0)
	e.restart()
	e.checkOpened(e.logAt(0, 0), "made again, after a restart", 0, endOf(fresh, 0), fresh)
	e.checkOpened(e.log(1), "the other log", 0, endOf(kept, 0), kept)

	never := e.log(2)
	e.must(e.store.Delete(e.ctx, logID(2)), "delete an empty log that is open")
	_, err = e.tryAppend(request(never.Handle, 1, 0, e.batch(0, 1, 1)))
	e.wantClass(err, "append to a deleted empty log", storage.ErrFenced, storage.ErrGone)
	e.checkOpened(e.log(2), "made again in the same life", 0, 0, nil)
}

// checkGone fails the case if log n is listed.
func (e *env) checkGone(n int, when string) {
	infos, err := e.store.List(e.ctx)
	e.must(err, "list")
	for _, info := range infos {
		if info.ID == logID(n) {
			e.failf("%s: the log is listed", when)
		}
	}
}

func deleteKill(e *env) {
	for i := range 6 {
		e.fill(e.log(i).Handle, 0, 4, 1)
	}
	for i := range 5 {
		e.must(e.store.Delete(e.ctx, logID(i)), "delete")
	}
	e.kill()
	for i := range 5 {
		e.checkGone(i, "after Delete and a kill")
	}
	infos, err := e.store.List(e.ctx)
	e.must(err, "list")
	if len(infos) != 1 {
		e.failf("after deleting 5 logs of 6 and a kill, %d are listed", len(infos))
	}
}

func shutdown(e *env) {
	r := e.log(0)
	b := e.fill(r.Handle, 0, 20, 1)
	e.must(e.store.Shutdown(e.ctx), "shut down")
	e.eachCall(e.ctx, r.Handle, endOf(b, 0), func(act string, err error) {
		e.wantClass(err, act+" after Shutdown", storage.ErrGone)
	})
	e.openStore()
	e.checkOpened(e.log(0), "after Shutdown", 0, endOf(b, 0), b)
}

// eachCall makes every call that a store has on the log behind h, whose LEO is
// given, and tells what each answered.
func (e *env) eachCall(ctx context.Context, h storage.Handle, leo int64, tell func(act string, err error)) {
	opened := e.store.Open(ctx, []storage.OpenSpec{{ID: logID(50), Create: true, LeaderEpoch: 1}})
	if len(opened) != 1 {
		e.failf("open of one log gave %d results", len(opened))
	}
	tell("open", opened[0].Err)
	_, err := e.store.List(ctx)
	tell("list", err)
	tell("delete", e.store.Delete(ctx, logID(51)))
	p := &pending{req: request(h, 1, leo, e.batch(leo, 1, 1)), done: make(chan struct{})}
	e.beginWith(ctx, p)
	_, err = p.wait(e.ctx)
	tell("append", err)
	_, err = e.store.Read(ctx, storage.ReadRequest{Handle: h, Offset: 0, UpTo: leo, MaxBytes: 1000})
	tell("read", err)
	_, err = e.store.Scan(ctx, storage.ScanRequest{Handle: h, Offset: 0, UpTo: leo})
	tell("scan", err)
	flushed := e.store.Flush(ctx, []storage.Handle{h})
	if len(flushed) != 1 {
		e.failf("flush of one handle gave %d results", len(flushed))
	}
	tell("flush", flushed[0].Err)
	_, err = e.store.Truncate(ctx, h, 1, leo+10)
	tell("truncate", err)
	_, err = e.store.Trim(ctx, h, 0)
	tell("trim", err)
	_, err = e.store.Retain(ctx, h, storage.RetainPolicy{Now: e.start, MaxBytes: -1})
	tell("retain", err)
	tell("replace", e.store.Replace(ctx, storage.ReplaceRequest{Handle: h}))
	_, _, err = e.store.FindTimestamp(ctx, storage.TimestampQuery{Handle: h, Kind: storage.Latest, UpTo: leo})
	tell("find a timestamp", err)
	tell("put a blob", e.store.PutBlob(ctx, h, "b", storage.Blob{Data: []byte("x")}))
	_, _, err = e.store.GetBlob(ctx, h, "b")
	tell("get a blob", err)
	_, err = e.store.Usage(ctx)
	tell("usage", err)
}

func badArguments(e *env) {
	r := e.log(0)
	b := e.fill(r.Handle, 0, 8, 1)
	leo := endOf(b, 0)
	for _, h := range []storage.Handle{0, r.Handle + 1000, math.MaxUint64} {
		e.eachCall(e.ctx, h, leo, func(act string, err error) {
			switch act {
			case "open", "list", "delete", "usage":
				e.must(err, act)
			default:
				e.wantClass(err, fmt.Sprintf("%s through handle %d, which is none", act, h),
					storage.ErrGone, storage.ErrFenced, storage.ErrInvalid)
			}
		})
	}
	for _, offset := range []int64{-1, math.MinInt64, leo + 1, math.MaxInt64} {
		at := fmt.Sprintf("at offset %d", offset)
		_, err := e.store.Read(e.ctx, storage.ReadRequest{Handle: r.Handle, Offset: offset, UpTo: leo, MaxBytes: 100})
		e.wantClass(err, "read "+at, storage.ErrInvalid)
		_, err = e.store.Scan(e.ctx, storage.ScanRequest{Handle: r.Handle, Offset: offset, UpTo: leo})
		e.wantClass(err, "scan "+at, storage.ErrInvalid)
		_, err = e.tryAppend(request(r.Handle, 1, offset, e.batch(leo, 1, 1)))
		e.wantClass(err, "append "+at, storage.ErrInvalid)
		err = e.store.Replace(e.ctx, storage.ReplaceRequest{Handle: r.Handle, From: 0, To: offset})
		e.wantClass(err, "replace up to "+at, storage.ErrInvalid)
	}
	for _, to := range []int64{-1, math.MinInt64} {
		_, err := e.store.Truncate(e.ctx, r.Handle, 1, to)
		e.wantClass(err, fmt.Sprintf("truncate to %d", to), storage.ErrInvalid)
		_, err = e.store.Trim(e.ctx, r.Handle, to)
		e.must(err, fmt.Sprintf("trim to %d, below the log start", to))
		_, err = e.store.Read(e.ctx, storage.ReadRequest{Handle: r.Handle, Offset: 0, UpTo: to, MaxBytes: int(to)})
		e.must(err, fmt.Sprintf("read up to %d", to))
	}
	_, _, err := e.store.FindTimestamp(e.ctx, storage.TimestampQuery{Handle: r.Handle, Kind: 99, UpTo: leo})
	e.wantClass(err, "find a timestamp by a kind that is none", storage.ErrInvalid)
	if n := len(e.store.Open(e.ctx, nil)) + len(e.store.Close(e.ctx, nil)) + len(e.store.Flush(e.ctx, nil)); n != 0 {
		e.failf("calls for no log gave %d results", n)
	}
	_, err = e.tryAppend(storage.AppendRequest{Handle: r.Handle, LeaderEpoch: 1, BaseOffset: leo})
	e.wantClass(err, "append nothing", storage.ErrInvalid)
	e.checkLog(r.Handle, "after bad arguments", 0, leo, b)
}

func cancelled(e *env) {
	r := e.log(0)
	b := e.fill(r.Handle, 0, 8, 1)
	leo := endOf(b, 0)
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	appended := false
	e.eachCall(ctx, r.Handle, leo, func(act string, err error) {
		if act == "append" && err == nil {
			appended = true
		}
		if err != nil {
			e.wantClass(err, act+" with a context that has ended", storage.ErrUnknown, storage.ErrRetry, storage.ErrGone)
		}
	})
	r = e.log(0)
	if r.LEO != leo && r.LEO != leo+1 || appended && r.LEO != leo+1 {
		e.failf("after an append of one offset at %d with a context that has ended (acknowledged: %v) the LEO is %d", leo, appended, r.LEO)
	}
	held, err := e.readAll(r.Handle, 0, leo)
	e.must(err, "read")
	if _, want := join(b); string(held) != string(want) {
		e.failf("after calls with a context that has ended, the log reads %s", describe(held))
	}
}

func usage(e *env) {
	use, err := e.store.Usage(e.ctx)
	e.must(err, "usage")
	if use.Total < 0 || use.Free < 0 || use.Free > use.Total {
		e.failf("usage is %+v", use)
	}
	caps := e.store.Capabilities()
	if caps.Survives < storage.SurvivesProcess || caps.Survives > storage.SurvivesStore {
		e.failf("an append can survive level %d at most", caps.Survives)
	}
	e.restart()
	if again := e.store.Capabilities(); again != caps {
		e.failf("capabilities were %+v and are %+v", caps, again)
	}
}

func providerCases() []Case {
	return []Case{
		{Name: "identity", About: "a store takes the identity and directory ID it is first opened with, and refuses another cluster or node", run: identity},
		{Name: "second-opener", About: "a store that is open refuses a second opener, and is none the worse for it", run: secondOpener},
		{Name: "settings", About: "an unknown setting is refused by name", run: unknownSetting},
	}
}

func identity(e *env) {
	b := e.fill(e.log(0).Handle, 0, 3, 1)
	e.must(e.store.Shutdown(e.ctx), "shut down")
	cfg := e.backing.Config()
	refuse := func(what string, id storage.Identity) {
		other := cfg
		other.Identity = id
		_, _, err := e.backing.Open(e.ctx, other)
		e.wantClass(err, "open the store for another "+what, storage.ErrFenced)
	}
	refuse("cluster", storage.Identity{ClusterID: cfg.Identity.ClusterID + "-other", NodeID: cfg.Identity.NodeID})
	refuse("node", storage.Identity{ClusterID: cfg.Identity.ClusterID, NodeID: cfg.Identity.NodeID + 1})
	again := cfg
	again.ProposedDirectoryID = storage.DirectoryID{9, 9, 9}
	store, dir, err := e.backing.Open(e.ctx, again)
	e.must(err, "open the store again")
	e.store, e.ids = store, new(idSet)
	if dir != cfg.ProposedDirectoryID {
		e.failf("the store was first opened with directory ID %x and answers %x", cfg.ProposedDirectoryID, dir)
	}
	e.checkOpened(e.log(0), "after refusals", 0, endOf(b, 0), b)
}

func secondOpener(e *env) {
	r := e.log(0)
	b := e.fill(r.Handle, 0, 3, 1)
	for range 3 {
		_, _, err := e.backing.Open(e.ctx, e.backing.Config())
		e.wantClass(err, "open a store that is open", storage.ErrFenced)
	}
	next := e.batch(endOf(b, 0), 2, 1)
	e.append(r.Handle, next.BaseOffset, next)
	e.restart()
	e.checkOpened(e.log(0), "after a second opener was refused", 0, next.end(), append(b, next))
}

func unknownSetting(e *env) {
	const name = "no-such-setting"
	e.must(e.store.Shutdown(e.ctx), "shut down")
	cfg := e.backing.Config()
	cfg.Settings = withSetting(cfg.Settings, name)
	store, _, err := e.backing.Open(e.ctx, cfg)
	if err == nil {
		e.must(store.Shutdown(e.ctx), "shut down")
		e.failf("a store opens with the setting %q, which it does not have", name)
	}
	if !strings.Contains(err.Error(), name) {
		e.failf("the error about the setting %q does not name it: %v", name, err)
	}
	e.openStore()
}
