package wire

import (
	"context"
	"errors"
	"strings"

	"github.com/brokerd/brokerd/core/model"
)

// Code is an error code of the protocol.
type Code = int16

// Codes that are used without a sentinel.
const (
	CodeNone    Code = 0
	CodeUnknown Code = -1
	// Those below are decided at the edge alone.
	CodeResourceNotFound        Code = 91
	CodeDuplicateResource       Code = 92
	CodeMismatchedEndpointType  Code = 114
	CodeUnsupportedEndpointType Code = 115
	CodeRebootstrapRequired     Code = 129
)

type errorRow struct {
	err  error
	code Code
}

// errorRows is the whole mapping, in the order of the codes. An error that
// wraps several sentinels gets the first row that matches.
func errorRows() []errorRow {
	return []errorRow{
		{model.ErrOffsetOutOfRange, 1},
		{model.ErrCorruptMessage, 2},
		{model.ErrUnknownTopicOrPartition, 3},
		{model.ErrLeaderNotAvailable, 5},
		{model.ErrNotLeaderOrFollower, 6},
		{model.ErrRequestTimedOut, 7},
		{model.ErrMessageTooLarge, 10},
		{model.ErrOffsetMetadataTooLarge, 12},
		{model.ErrCoordinatorLoading, 14},
		{model.ErrCoordinatorNotAvailable, 15},
		{model.ErrNotCoordinator, 16},
		{model.ErrInvalidTopic, 17},
		{model.ErrRecordListTooLarge, 18},
		{model.ErrNotEnoughReplicas, 19},
		{model.ErrNotEnoughReplicasAfter, 20},
		{model.ErrInvalidRequiredAcks, 21},
		{model.ErrIllegalGeneration, 22},
		{model.ErrInconsistentProtocol, 23},
		{model.ErrInvalidGroupID, 24},
		{model.ErrUnknownMemberID, 25},
		{model.ErrInvalidSessionTimeout, 26},
		{model.ErrRebalanceInProgress, 27},
		{model.ErrTopicAuthorization, 29},
		{model.ErrGroupAuthorization, 30},
		{model.ErrClusterAuthorization, 31},
		{model.ErrInvalidTimestamp, 32},
		{model.ErrUnsupportedVersion, 35},
		{model.ErrTopicExists, 36},
		{model.ErrInvalidPartitions, 37},
		{model.ErrInvalidReplication, 38},
		{model.ErrInvalidAssignment, 39},
		{model.ErrInvalidConfig, 40},
		{model.ErrNotController, 41},
		{model.ErrInvalidRequest, 42},
		{model.ErrPolicyViolation, 44},
		{model.ErrOutOfOrderSequence, 45},
		{model.ErrInvalidProducerEpoch, 47},
		{model.ErrInvalidProducerMapping, 49},
		{model.ErrTransactionalIDAuth, 53},
		{model.ErrSecurityDisabled, 54},
		{model.ErrStorage, 56},
		{model.ErrLogDirNotFound, 57},
		{model.ErrUnknownProducerID, 59},
		{model.ErrReassignmentInProgress, 60},
		{model.ErrNonEmptyGroup, 68},
		{model.ErrGroupIDNotFound, 69},
		{model.ErrFetchSessionNotFound, 70},
		{model.ErrInvalidFetchEpoch, 71},
		{model.ErrListenerNotFound, 72},
		{model.ErrFencedLeaderEpoch, 74},
		{model.ErrUnknownLeaderEpoch, 75},
		{model.ErrUnsupportedCompression, 76},
		{model.ErrStaleBrokerEpoch, 77},
		{model.ErrOffsetNotAvailable, 78},
		{model.ErrMemberIDRequired, 79},
		{model.ErrPreferredLeaderNotAvailable, 80},
		{model.ErrGroupMaxSize, 81},
		{model.ErrFencedInstanceID, 82},
		{model.ErrEligibleLeadersNotAvailable, 83},
		{model.ErrElectionNotNeeded, 84},
		{model.ErrNoReassignment, 85},
		{model.ErrGroupSubscribed, 86},
		{model.ErrInvalidRecord, 87},
		{model.ErrUnstableOffset, 88},
		{model.ErrThrottlingQuota, 89},
		{model.ErrInvalidUpdateVersion, 95},
		{model.ErrUnknownTopicID, 100},
		{model.ErrDuplicateBroker, 101},
		{model.ErrBrokerIDNotRegistered, 102},
		{model.ErrInconsistentTopicID, 103},
		{model.ErrInconsistentClusterID, 104},
		{model.ErrTransactionalIDNotFound, 105},
		{model.ErrFetchSessionTopicID, 106},
		{model.ErrIneligibleReplica, 107},
		{model.ErrNewLeaderElected, 108},
		{model.ErrStaleMemberEpoch, 113},
		{model.ErrInvalidRegistration, 119},
		{model.ErrDuplicateVoter, 126},
		{model.ErrVoterNotFound, 127},
		// A deadline, or a broker that stops, leaves the outcome unknown: the
		// retriable code says so. It must not be UNKNOWN_SERVER_ERROR, which
		// makes idempotent producers write twice.
		{context.DeadlineExceeded, 7},
		{context.Canceled, 7},
	}
}

// Errors finds the code of an error. It is never changed after NewErrors.
type Errors struct {
	rows []errorRow
}

// NewErrors makes the table.
func NewErrors() Errors { return Errors{rows: errorRows()} }

// Text is the error's text without the sentinel's own at its end, which says no
// more than the code beside it.
func (e Errors) Text(err error) string {
	text := err.Error()
	for _, r := range e.rows {
		if short, ok := strings.CutSuffix(text, ": "+r.err.Error()); ok && errors.Is(err, r.err) {
			return short
		}
	}
	return text
}

// Code returns the code of the first sentinel in err's tree, CodeNone for nil
// and CodeUnknown for an error that wraps no sentinel.
func (e Errors) Code(err error) Code {
	if err == nil {
		return CodeNone
	}
	for _, r := range e.rows {
		if errors.Is(err, r.err) {
			return r.code
		}
	}
	return CodeUnknown
}
