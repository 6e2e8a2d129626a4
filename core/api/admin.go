package api

import (
	"context"
	"fmt"

	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// answerAdmin is answer for what operators' tools ask and applications do not.
func (h *Handler) answerAdmin(ctx context.Context, from caller, req kmsg.Request) wire.Reply {
	switch req := req.(type) {
	case *kmsg.DescribeACLsRequest:
		return respond(h.describeACLs(ctx, from, req))
	case *kmsg.CreateACLsRequest:
		return respond(h.createACLs(ctx, from, req))
	case *kmsg.DeleteACLsRequest:
		return respond(h.deleteACLs(ctx, from, req))
	case *kmsg.ElectLeadersRequest:
		return respond(h.electLeaders(ctx, from, req))
	case *kmsg.AlterPartitionAssignmentsRequest:
		return respond(h.alterPartitionReassignments(ctx, from, req))
	case *kmsg.ListPartitionReassignmentsRequest:
		return respond(h.listPartitionReassignments(ctx, from, req))
	case *kmsg.DescribeClientQuotasRequest:
		return respond(h.describeClientQuotas(ctx, from, req))
	case *kmsg.DescribeUserSCRAMCredentialsRequest:
		return respond(h.describeUserSCRAMCredentials(ctx, from, req))
	case *kmsg.DescribeQuorumRequest:
		return respond(h.describeQuorum(ctx, from, req))
	case *kmsg.DescribeProducersRequest:
		return respond(h.describeProducers(ctx, from, req))
	case *kmsg.UnregisterBrokerRequest:
		return respond(h.unregisterBroker(ctx, from, req))
	case *kmsg.AddRaftVoterRequest:
		return respond(h.addRaftVoter(ctx, from, req))
	case *kmsg.RemoveRaftVoterRequest:
		return respond(h.removeRaftVoter(ctx, from, req))
	case *kmsg.ListConfigResourcesRequest:
		return respond(h.listConfigResources(ctx, from, req))
	}
	return wire.Reply{Close: true, Reason: fmt.Sprintf("no answer to API key %d", req.Key())}
}
