package wire

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	"github.com/brokerd/brokerd/core/model"
	"github.com/twmb/franz-go/pkg/kerr"
)

// sentinels are the names of the variables that begin with Err in a file.
func sentinels(t *testing.T, file string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.ValueSpec); ok {
			for _, name := range s.Names {
				if len(name.Name) > 3 && name.Name[:3] == "Err" {
					out = append(out, name.Name)
				}
			}
		}
		return true
	})
	return out
}

// used are the names that a file takes from the package model.
func used(t *testing.T, file string) map[string]bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]bool)
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "model" {
				out[s.Sel.Name] = true
			}
		}
		return true
	})
	return out
}

func TestEverySentinelHasARow(t *testing.T) {
	names := sentinels(t, "../model/errors.go")
	if len(names) < 40 {
		t.Fatalf("found only %d sentinels", len(names))
	}
	rows := used(t, "errors.go")
	for _, n := range names {
		if !rows[n] {
			t.Errorf("model.%s has no code", n)
		}
	}
}

func TestRowsAreKnownCodes(t *testing.T) {
	errs := NewErrors()
	seen := make(map[error]bool)
	for _, r := range errorRows() {
		if seen[r.err] {
			t.Errorf("%v has two rows", r.err)
		}
		seen[r.err] = true
		if kerr.ErrorForCode(r.code) == nil || errors.Is(kerr.ErrorForCode(r.code), kerr.UnknownServerError) {
			t.Errorf("%v: code %d is none of the protocol's", r.err, r.code)
		}
		if got := errs.Code(fmt.Errorf("attempt: %w", r.err)); got != r.code {
			t.Errorf("wrapped %v is %d, not %d", r.err, got, r.code)
		}
	}
}

func TestCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want *kerr.Error
	}{
		{model.ErrOffsetOutOfRange, kerr.OffsetOutOfRange},
		{model.ErrCorruptMessage, kerr.CorruptMessage},
		{model.ErrUnknownTopicOrPartition, kerr.UnknownTopicOrPartition},
		{model.ErrLeaderNotAvailable, kerr.LeaderNotAvailable},
		{model.ErrNotLeaderOrFollower, kerr.NotLeaderForPartition},
		{model.ErrRequestTimedOut, kerr.RequestTimedOut},
		{model.ErrMessageTooLarge, kerr.MessageTooLarge},
		{model.ErrCoordinatorNotAvailable, kerr.CoordinatorNotAvailable},
		{model.ErrInvalidTopic, kerr.InvalidTopicException},
		{model.ErrRecordListTooLarge, kerr.RecordListTooLarge},
		{model.ErrNotEnoughReplicas, kerr.NotEnoughReplicas},
		{model.ErrNotEnoughReplicasAfter, kerr.NotEnoughReplicasAfterAppend},
		{model.ErrInvalidRequiredAcks, kerr.InvalidRequiredAcks},
		{model.ErrTopicAuthorization, kerr.TopicAuthorizationFailed},
		{model.ErrClusterAuthorization, kerr.ClusterAuthorizationFailed},
		{model.ErrInvalidTimestamp, kerr.InvalidTimestamp},
		{model.ErrUnsupportedVersion, kerr.UnsupportedVersion},
		{model.ErrTopicExists, kerr.TopicAlreadyExists},
		{model.ErrInvalidPartitions, kerr.InvalidPartitions},
		{model.ErrInvalidReplication, kerr.InvalidReplicationFactor},
		{model.ErrInvalidAssignment, kerr.InvalidReplicaAssignment},
		{model.ErrInvalidConfig, kerr.InvalidConfig},
		{model.ErrNotController, kerr.NotController},
		{model.ErrInvalidRequest, kerr.InvalidRequest},
		{model.ErrPolicyViolation, kerr.PolicyViolation},
		{model.ErrOutOfOrderSequence, kerr.OutOfOrderSequenceNumber},
		{model.ErrInvalidProducerEpoch, kerr.InvalidProducerEpoch},
		{model.ErrInvalidProducerMapping, kerr.InvalidProducerIDMapping},
		{model.ErrTransactionalIDAuth, kerr.TransactionalIDAuthorizationFailed},
		{model.ErrSecurityDisabled, kerr.SecurityDisabled},
		{model.ErrStorage, kerr.KafkaStorageError},
		{model.ErrLogDirNotFound, kerr.LogDirNotFound},
		{model.ErrUnknownProducerID, kerr.UnknownProducerID},
		{model.ErrFetchSessionNotFound, kerr.FetchSessionIDNotFound},
		{model.ErrInvalidFetchEpoch, kerr.InvalidFetchSessionEpoch},
		{model.ErrListenerNotFound, kerr.ListenerNotFound},
		{model.ErrFencedLeaderEpoch, kerr.FencedLeaderEpoch},
		{model.ErrUnknownLeaderEpoch, kerr.UnknownLeaderEpoch},
		{model.ErrUnsupportedCompression, kerr.UnsupportedCompressionType},
		{model.ErrOffsetNotAvailable, kerr.OffsetNotAvailable},
		{model.ErrInvalidRecord, kerr.InvalidRecord},
		{model.ErrUnstableOffset, kerr.UnstableOffsetCommit},
		{model.ErrThrottlingQuota, kerr.ThrottlingQuotaExceeded},
		{model.ErrUnknownTopicID, kerr.UnknownTopicID},
		{model.ErrInconsistentTopicID, kerr.InconsistentTopicID},
		{model.ErrTransactionalIDNotFound, kerr.TransactionalIDNotFound},
		{model.ErrFetchSessionTopicID, kerr.FetchSessionTopicIDError},
		{model.ErrReassignmentInProgress, kerr.ReassignmentInProgress},
		{model.ErrStaleBrokerEpoch, kerr.StaleBrokerEpoch},
		{model.ErrPreferredLeaderNotAvailable, kerr.PreferredLeaderNotAvailable},
		{model.ErrEligibleLeadersNotAvailable, kerr.EligibleLeadersNotAvailable},
		{model.ErrElectionNotNeeded, kerr.ElectionNotNeeded},
		{model.ErrNoReassignment, kerr.NoReassignmentInProgress},
		{model.ErrInvalidUpdateVersion, kerr.InvalidUpdateVersion},
		{model.ErrDuplicateBroker, kerr.DuplicateBrokerRegistration},
		{model.ErrBrokerIDNotRegistered, kerr.BrokerIDNotRegistered},
		{model.ErrInconsistentClusterID, kerr.InconsistentClusterID},
		{model.ErrIneligibleReplica, kerr.IneligibleReplica},
		{model.ErrNewLeaderElected, kerr.NewLeaderElected},
		{model.ErrInvalidRegistration, kerr.InvalidRegistration},
		{model.ErrDuplicateVoter, kerr.DuplicateVoter},
		{model.ErrVoterNotFound, kerr.VoterNotFound},
		{context.DeadlineExceeded, kerr.RequestTimedOut},
		{context.Canceled, kerr.RequestTimedOut},
		{errors.New("who knows"), kerr.UnknownServerError},
	} {
		if got := NewErrors().Code(c.err); got != c.want.Code {
			t.Errorf("%v is %d, not %s", c.err, got, c.want.Message)
		}
	}
	if got := NewErrors().Code(nil); got != CodeNone {
		t.Errorf("no error is %d", got)
	}
}

func TestCodesWithoutSentinel(t *testing.T) {
	for code, want := range map[Code]*kerr.Error{
		CodeMismatchedEndpointType:  kerr.MismatchedEndpointType,
		CodeUnsupportedEndpointType: kerr.UnsupportedEndpointType,
		CodeRebootstrapRequired:     kerr.RebootstrapRequired,
	} {
		if want.Code != code {
			t.Errorf("%d is not %s", code, want.Message)
		}
	}
}

func TestTextWithoutItsTail(t *testing.T) {
	errs := NewErrors()
	for _, tc := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("segment.bytes cannot be 1: %w", model.ErrInvalidConfig), "segment.bytes cannot be 1"},
		{fmt.Errorf("%w: named twice", model.ErrInvalidRequest), "invalid request: named twice"},
		{model.ErrInvalidConfig, "invalid configuration"},
	} {
		if got := errs.Text(tc.err); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}
