package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

type describedGroup struct {
	Group       string             `json:"group"`
	State       string             `json:"state"`
	Type        string             `json:"protocol_type"`
	Assignor    string             `json:"assignor"`
	Coordinator int32              `json:"coordinator"`
	Members     []groupMember      `json:"members"`
	Partitions  []groupedPartition `json:"partitions"`
	// Lag is that of all partitions whose lag is known.
	Lag int64 `json:"lag"`
}

type groupMember struct {
	ID         string `json:"id"`
	Instance   string `json:"instance,omitempty"` // of a static member
	Client     string `json:"client"`
	Host       string `json:"host"`
	Partitions int    `json:"partitions"`
}

// name is the member as a person knows it.
func (m *groupMember) name() string {
	if m.Instance != "" {
		return m.Instance
	}
	return m.ID
}

// groupedPartition is a partition that is committed, or assigned to a member.
type groupedPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed *int64 `json:"committed"`      // null: nothing is committed
	LogEnd    *int64 `json:"log_end_offset"` // null: not known
	Lag       *int64 `json:"lag"`            // null: not known
	Member    string `json:"member,omitempty"`
	Host      string `json:"host,omitempty"`
	Error     string `json:"error,omitempty"`
}

func newGroupDescribe(c *console) *cobra.Command {
	var (
		at      cluster
		members bool
		format  string
	)
	cmd := &cobra.Command{
		Use:   "describe GROUP",
		Short: "Show a group's members, committed offsets and lag",
		Long: `Shows for each partition that is committed or assigned: the committed offset, which
is that of the first record still to be processed; the offset at which the log ends;
the lag, from the one to the other; and who reads it. Where nothing is committed,
the lag depends on where a consumer chooses to begin, and is left open.`,
		Example: `  brokerd group describe billing
  brokerd group describe billing --members
  brokerd group describe billing -o json`,
		Args: oneArg("a group"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(cmd, format); err != nil {
				return err
			}
			admin, err := at.admin(cmd.Context())
			if err != nil {
				return err
			}
			defer admin.Close()
			g, err := describeGroup(cmd.Context(), admin, args[0])
			if err != nil {
				return err
			}
			switch {
			case format == "json":
				return writeJSON(c.out, g)
			case members:
				return c.showMembers(g)
			}
			return c.showGroup(g)
		},
	}
	at.flag(cmd)
	cmd.Flags().BoolVar(&members, "members", false, "the members and how many partitions each has, instead of the partitions")
	outputFlag(cmd, &format)
	return cmd
}

// states of a group that matter here.
const (
	groupDead  = "Dead"
	groupEmpty = "Empty"
)

func describeGroup(ctx context.Context, admin *kadm.Client, name string) (describedGroup, error) {
	var l kadm.DescribedGroupLag
	if err := patiently(ctx, func() error {
		lags, err := admin.Lag(ctx, name)
		if l = lags[name]; err == nil {
			err = l.Error()
		}
		return one(err)
	}); err != nil {
		return describedGroup{}, groupError("describe", name, err, "")
	}
	out := describedGroup{
		Group: name, State: l.State, Type: l.ProtocolType, Assignor: l.Protocol, Coordinator: l.Coordinator.NodeID,
		Members: []groupMember{}, Partitions: []groupedPartition{},
	}
	if l.State == groupDead && len(l.Lag) == 0 { // what old brokers say of a group that is not there
		return describedGroup{}, groupError("describe", name, kerr.GroupIDNotFound, "")
	}
	for _, m := range l.Members {
		out.Members = append(out.Members, newGroupMember(&m))
	}
	for _, p := range l.Lag.Sorted() {
		if p.Member == nil && p.Commit.At < 0 {
			continue // another partition of a topic that the group reads
		}
		shown := newGroupedPartition(&p)
		if shown.Lag != nil {
			out.Lag += *shown.Lag
		}
		out.Partitions = append(out.Partitions, shown)
	}
	slices.SortFunc(out.Members, func(a, b groupMember) int { return cmp.Compare(a.name(), b.name()) })
	return out, nil
}

func newGroupMember(m *kadm.DescribedGroupMember) groupMember {
	out := groupMember{ID: m.MemberID, Client: m.ClientID, Host: strings.TrimPrefix(m.ClientHost, "/")}
	if m.InstanceID != nil {
		out.Instance = *m.InstanceID
	}
	if a, ok := m.Assigned.AsConsumer(); ok {
		for _, t := range a.Topics {
			out.Partitions += len(t.Partitions)
		}
	}
	return out
}

func newGroupedPartition(p *kadm.GroupMemberLag) groupedPartition {
	out := groupedPartition{Topic: p.Topic, Partition: p.Partition}
	if p.Member != nil {
		m := newGroupMember(p.Member)
		out.Member, out.Host = m.name(), m.Host
	}
	if p.Commit.At >= 0 {
		out.Committed = &p.Commit.At
	}
	if p.End.Err == nil {
		out.LogEnd = &p.End.Offset
	}
	if out.Committed != nil && out.LogEnd != nil {
		lag := max(0, *out.LogEnd-*out.Committed)
		out.Lag = &lag
	}
	if p.Err != nil {
		out.Error = shortError{p.Err}.Error()
	}
	return out
}

func (c *console) showGroup(g describedGroup) error {
	if err := c.showGroupHead(g); err != nil {
		return err
	}
	if len(g.Partitions) == 0 {
		_, err := fmt.Fprintln(c.err, "nothing is committed, and no partition is assigned")
		return err
	}
	var rows [][]string
	for _, p := range g.Partitions {
		rows = append(rows, []string{p.Topic, strconv.Itoa(int(p.Partition)), numberText(p.Committed), numberText(p.LogEnd), numberText(p.Lag),
			orDash(p.Member), orDash(p.Host), p.Error})
	}
	return writeTable(c.out, []string{"topic", "partition", "committed", "end", "lag", "member", "host", "error"}, rows)
}

func (c *console) showGroupHead(g describedGroup) error {
	_, err := fmt.Fprintf(c.out, "group        %s\nstate        %s\nassignor     %s\ncoordinator  %d\nmembers      %d\nlag          %d\n\n",
		printable(g.Group), g.State, orDash(printable(g.Assignor)), g.Coordinator, len(g.Members), g.Lag)
	return err
}

func (c *console) showMembers(g describedGroup) error {
	if err := c.showGroupHead(g); err != nil {
		return err
	}
	if len(g.Members) == 0 {
		_, err := fmt.Fprintln(c.err, "the group has no members")
		return err
	}
	var rows [][]string
	for _, m := range g.Members {
		rows = append(rows, []string{m.name(), m.Host, orDash(m.Client), strconv.Itoa(m.Partitions)})
	}
	return writeTable(c.out, []string{"member", "host", "client", "partitions"}, rows)
}

func numberText(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}
