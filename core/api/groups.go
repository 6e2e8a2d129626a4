package api

import (
	"context"

	"github.com/brokerd/brokerd/core/model"
)

// Groups is the group coordinator on this broker. Questions of one caller are taken
// in the order of the calls; each done is called exactly once, from any goroutine,
// possibly before the call returns, and must not block. A call waits only while the
// coordinator has too much to do; when ctx ends then, the answer's error says so. Every
// answer may have ErrCoordinatorLoading, ErrNotCoordinator or ErrCoordinatorNotAvailable.
type Groups interface {
	// Coordinator is the broker that coordinates a group. Where the offsets topic is
	// not there yet it asks for it to be made, waits for it until ctx ends, and answers
	// ErrCoordinatorNotAvailable with the reason if it is still not there.
	Coordinator(ctx context.Context, group string) (model.NodeID, error)

	Join(ctx context.Context, q model.JoinGroup, done func(model.JoinedGroup))
	Sync(ctx context.Context, q model.SyncGroup, done func(model.SyncedGroup))
	Heartbeat(ctx context.Context, q model.GroupHeartbeat, done func(error))
	Leave(ctx context.Context, q model.LeaveGroup, done func(model.LeftGroup))
	Commit(ctx context.Context, q model.CommitOffsets, done func(model.CommittedOffsets))
	FetchOffsets(ctx context.Context, q model.FetchOffsets, done func(model.FetchedOffsets))
	DeleteOffsets(ctx context.Context, q model.DeleteOffsets, done func(model.DeletedOffsets))
	Describe(ctx context.Context, group string, done func(model.DescribedGroup))
	Delete(ctx context.Context, group string, done func(error))
	// List tells of all groups whose coordinator this broker is.
	List(ctx context.Context, done func(model.ListedGroups))
}
