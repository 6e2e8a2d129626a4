package plugin

import (
	"context"
	"os"

	"github.com/brokerd/brokerd/sdk/storage"
)

// lentFiles is what a plugin's store lends as it comes, for a caller that wants to be
// the host itself (CarrierLent). Nothing of it is used here, and nothing is checked.
type lentFiles struct{ s *Store }

var _ storage.Files = lentFiles{}

// ask does a unit that may be answered with a file.
func (f lentFiles) ask(ctx context.Context, req request) (answer, error) {
	ctx, cancel, err := f.s.begin(ctx)
	if err != nil {
		return answer{}, err
	}
	defer cancel()
	req.timeout = f.s.client.callTimeout
	a, err := f.s.lane.do(ctx, req, 0)
	if err != nil {
		a.drop()
	}
	return a, err
}

// Grant implements storage.Files.
func (f lentFiles) Grant(ctx context.Context, h storage.Handle, leaderEpoch int32, require storage.Survives) (storage.Grant, error) {
	a, err := f.ask(ctx, request{head: head{kind: kindGrant, handle: h}, grant: grantRequest{epoch: leaderEpoch, require: require}})
	if err != nil {
		return storage.Grant{}, err
	}
	a.grant.File = a.file
	return a.grant, nil
}

// End implements storage.Files.
func (f lentFiles) End(ctx context.Context, h storage.Handle, id storage.GrantID) error {
	_, err := f.ask(ctx, request{head: head{kind: kindEnd, handle: h}, end: id})
	return err
}

// Lease implements storage.Files.
func (f lentFiles) Lease(ctx context.Context, h storage.Handle, offset int64) (storage.Lease, error) {
	a, err := f.ask(ctx, request{head: head{kind: kindLease, handle: h}, lease: offset})
	if err != nil {
		return storage.Lease{}, err
	}
	a.lease.File = a.file
	return a.lease, nil
}

// Return implements storage.Files.
func (f lentFiles) Return(leases []storage.LeaseID) {
	if len(leases) > 0 {
		f.s.lane.post(&call{req: request{head: head{kind: kindReturn}, leases: leases}})
	}
}

// Lock implements storage.Files.
func (f lentFiles) Lock() (*os.File, error) {
	a, err := f.ask(context.Background(), request{head: head{kind: kindLock}})
	return a.file, err
}
