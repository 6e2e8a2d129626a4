package security

import "context"

// Principal is who a connection speaks for.
type Principal struct {
	Type string // User
	Name string
}

// Anonymous is the principal of a connection that proved nothing.
var Anonymous = Principal{Type: "User", Name: "ANONYMOUS"}

// String is Kafka's form, Type:Name.
func (p Principal) String() string { return p.Type + ":" + p.Name }

// Operation is what is done to a resource, in Kafka's numbers.
type Operation int8

// Operations.
const (
	OpRead            Operation = 3
	OpWrite           Operation = 4
	OpCreate          Operation = 5
	OpDelete          Operation = 6
	OpAlter           Operation = 7
	OpDescribe        Operation = 8
	OpClusterAction   Operation = 9
	OpDescribeConfigs Operation = 10
	OpAlterConfigs    Operation = 11
	OpIdempotentWrite Operation = 12
)

// ResourceType is what an operation is done to, in Kafka's numbers.
type ResourceType int8

// Resource types.
const (
	Topic           ResourceType = 2
	Group           ResourceType = 3
	Cluster         ResourceType = 4
	TransactionalID ResourceType = 5
)

// ClusterName is the name of the one resource of type Cluster.
const ClusterName = "kafka-cluster"

// Action is one question to an authorizer.
type Action struct {
	Operation Operation
	Resource  ResourceType
	Name      string
}

// Authorizer decides. It is called for every action of every request, from many
// goroutines, and must not block on I/O.
type Authorizer interface {
	Authorize(ctx context.Context, who Principal, host string, what Action) bool
}

// AllowAll allows everything.
type AllowAll struct{}

// Authorize says yes.
func (AllowAll) Authorize(context.Context, Principal, string, Action) bool { return true }
