package controller

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/image/topicconfig"
	"github.com/brokerd/brokerd/core/model"
)

// Bounds of a topic's name. (Kafka's Topic.MAX_NAME_LENGTH)
const topicNameBytesMax = 249

// configBytesMax bounds the settings of one resource.
const configBytesMax = 64 << 10

// CheckTopicName says what is wrong with a name, as ErrInvalidTopic.
func CheckTopicName(name string) error {
	var reason string
	switch {
	case name == "":
		reason = "it is empty"
	case name == "." || name == "..":
		reason = "it cannot be . or .."
	case len(name) > topicNameBytesMax:
		return fmt.Errorf("topic name of %d characters: at most %d: %w", len(name), topicNameBytesMax, model.ErrInvalidTopic)
	case strings.IndexFunc(name, notInTopicName) >= 0:
		reason = "only ASCII letters and digits, '.', '_' and '-' may be in it"
	default:
		return nil
	}
	return fmt.Errorf("topic name %q: %s: %w", name, reason, model.ErrInvalidTopic)
}

func notInTopicName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
}

func (d *decision) createTopics(op CreateTopics) []model.TopicResult {
	before := *d
	seen := map[string]int{}
	for _, t := range op.Topics {
		seen[t.Name]++
	}
	results := make([]model.TopicResult, 0, len(op.Topics))
	budget := d.cfg.RequestPartitionsMax
	place := newPlacer(d.img, d.rand)
	for _, t := range op.Topics {
		r := model.TopicResult{Name: t.Name}
		if seen[t.Name] > 1 {
			r.Err = fmt.Errorf("topic %q is asked for more than once: %w", t.Name, model.ErrInvalidRequest)
		} else {
			r = d.createTopic(t, place, &budget)
		}
		if op.ValidateOnly {
			r.ID = model.TopicID{}
		}
		results = append(results, r)
	}
	if op.ValidateOnly {
		*d = before
	}
	return results
}

func (d *decision) createTopic(t model.NewTopic, place *placer, budget *int) model.TopicResult {
	r := model.TopicResult{Name: t.Name}
	if r.Err = d.checkName(t.Name); r.Err != nil {
		return r
	}
	configs, err := newConfigs(t)
	if err != nil {
		r.Err = err
		return r
	}
	assigned, target, err := d.assign(t, place, *budget)
	if err != nil {
		r.Err = err
		return r
	}
	*budget -= len(assigned)
	r.ID = d.newTopicID()
	r.Partitions, r.ReplicationFactor = int32(len(assigned)), int16(len(assigned[0]))
	records := []image.Record{&image.TopicRecord{ID: r.ID, Name: t.Name, Internal: t.Internal, ReplicationFactorTarget: target}}
	for n, replicas := range assigned {
		p := model.Partition{Topic: r.ID, Index: int32(n)}
		records = append(records, &image.PartitionRecord{Partition: p, Registration: d.registration(replicas)})
	}
	resource := model.Resource{Type: model.ResourceTopic, Name: t.Name}
	for _, key := range slices.Sorted(maps.Keys(configs)) {
		records = append(records, &image.ConfigRecord{Resource: resource, Key: key, Value: configs[key]})
	}
	d.emit(records...)
	return r
}

func (d *decision) checkName(name string) error {
	if err := CheckTopicName(name); err != nil {
		return err
	}
	if _, ok := d.img.TopicByName(name); ok {
		return fmt.Errorf("topic %q already exists: %w", name, model.ErrTopicExists)
	}
	if other, ok := d.img.TopicColliding(name); ok {
		return fmt.Errorf("topic name %q collides with topic %q: names that differ in '.' and '_' alone have the same metrics: %w", name, other, model.ErrInvalidTopic)
	}
	return nil
}

func newConfigs(t model.NewTopic) (map[string]string, error) {
	configs := make(map[string]string, len(t.Configs))
	for key, value := range t.Configs {
		if value == nil {
			return nil, fmt.Errorf("topic %q: setting %s has no value: %w", t.Name, key, model.ErrInvalidConfig)
		}
		configs[key] = *value
	}
	return configs, checkConfigs(t.Name, configs)
}

func checkConfigs(topic string, configs map[string]string) error {
	if err := checkConfigBytes(configs); err != nil {
		return fmt.Errorf("topic %q: %w", topic, err)
	}
	if err := topicconfig.Validate(configs); err != nil {
		return fmt.Errorf("topic %q: %w: %w", topic, err, model.ErrInvalidConfig)
	}
	return nil
}

func checkConfigBytes(configs map[string]string) error {
	size := 0
	for key, value := range configs {
		size += len(key) + len(value)
	}
	if size > configBytesMax {
		return fmt.Errorf("%d bytes of settings: at most %d: %w", size, configBytesMax, model.ErrInvalidConfig)
	}
	return nil
}

// assign gives the replicas of each partition, and the target that the topic is
// to have.
func (d *decision) assign(t model.NewTopic, place *placer, budget int) ([][]model.NodeID, int16, error) {
	if t.Assignment != nil {
		return d.assignByHand(t, budget)
	}
	count := t.Partitions
	if count == -1 {
		count = d.cfg.PartitionsDefault
	}
	if count < 1 {
		return nil, 0, fmt.Errorf("topic %q: %d partitions: at least 1, or -1 for the default: %w", t.Name, t.Partitions, model.ErrInvalidPartitions)
	}
	if err := d.checkGrowth(t.Name, int(count), budget); err != nil {
		return nil, 0, err
	}
	factor, target, err := d.factor(t, place)
	if err != nil {
		return nil, 0, err
	}
	assigned := make([][]model.NodeID, count)
	for i := range assigned {
		assigned[i] = place.place(factor)
	}
	return assigned, target, nil
}

// checkGrowth says whether so many partitions may be added.
func (d *decision) checkGrowth(topic string, more, budget int) error {
	if more > budget && budget == d.cfg.RequestPartitionsMax {
		return fmt.Errorf("topic %q: %d new partitions: one request may make %d; ask for fewer: %w", topic, more, budget, model.ErrPolicyViolation)
	}
	if more > budget {
		return fmt.Errorf("topic %q: %d new partitions: one request may make %d, of which %d are left: %w", topic, more, d.cfg.RequestPartitionsMax, budget, model.ErrPolicyViolation)
	}
	if all := d.img.PartitionCount(); more > d.cfg.ClusterPartitionsMax-all {
		return fmt.Errorf("topic %q: %d new partitions beside %d: the cluster may have %d: %w", topic, more, all, d.cfg.ClusterPartitionsMax, model.ErrPolicyViolation)
	}
	return nil
}

// factor is how many replicas a new topic gets, and is to have.
func (d *decision) factor(t model.NewTopic, place *placer) (int, int16, error) {
	refuse := func(why string) (int, int16, error) {
		return 0, 0, fmt.Errorf("topic %q: %s: %w", t.Name, why, model.ErrInvalidReplication)
	}
	unfenced, all := place.usable()
	asked, target := t.ReplicationFactor, max(1, d.img.Cluster.ReplicationFactorTarget)
	if t.ReplicationTarget > 0 {
		target = t.ReplicationTarget
	}
	switch {
	case asked == 0 || asked < -1:
		return refuse(fmt.Sprintf("replication factor %d: at least 1, or -1 for the cluster's target", asked))
	case unfenced == 0:
		return refuse(nobodyUp(all))
	case asked == -1 && d.cfg.Strict && int(target) > all:
		return refuse(strictly(int(target), all, "name a replication factor"))
	case asked == -1 && d.cfg.Strict:
		return int(target), target, nil
	case asked == -1:
		return min(int(target), unfenced), target, nil
	case int(asked) > all:
		return refuse(fmt.Sprintf("replication factor %d is more than the %d registered brokers: start more, or ask for less; -1 asks for the cluster's target and takes what there is", asked, all))
	}
	return int(asked), asked, nil
}

// nobodyUp says that no broker can hold a replica now, and what to do.
func nobodyUp(registered int) string {
	if registered == 0 {
		return "no broker is registered yet that could hold a replica: try again when one has started"
	}
	return fmt.Sprintf("none of the registered brokers (%d) is up and has a directory that serves, to hold a replica: start one, or try again when one is back; `brokerd cluster status` shows them", registered)
}

// strictly says why a target that cannot be had refuses what was asked.
func strictly(target, registered int, or string) string {
	return fmt.Sprintf("there are to be %d replicas, and %d brokers are registered: start more, or %s (replication.policy is strict)", target, registered, or)
}

func notRegistered(n model.NodeID) error {
	return fmt.Errorf("broker %d is not registered: start it first, or choose another one: %w", n, model.ErrInvalidAssignment)
}

// assignByHand checks an assignment that the client made. (KIP-4)
func (d *decision) assignByHand(t model.NewTopic, budget int) ([][]model.NodeID, int16, error) {
	if t.Partitions != -1 || t.ReplicationFactor != -1 {
		return nil, 0, fmt.Errorf("topic %q: with an assignment, partitions and replication factor must be -1: %w", t.Name, model.ErrInvalidRequest)
	}
	if len(t.Assignment) == 0 {
		return nil, 0, fmt.Errorf("topic %q: the assignment is empty: %w", t.Name, model.ErrInvalidAssignment)
	}
	if err := d.checkGrowth(t.Name, len(t.Assignment), budget); err != nil {
		return nil, 0, err
	}
	assigned := make([][]model.NodeID, len(t.Assignment))
	for i := range assigned {
		replicas, ok := t.Assignment[int32(i)]
		if !ok {
			return nil, 0, fmt.Errorf("topic %q: the assignment has %d partitions, and partition %d is not one of them: %w", t.Name, len(t.Assignment), i, model.ErrInvalidAssignment)
		}
		if err := d.checkReplicas(replicas, len(t.Assignment[0])); err != nil {
			return nil, 0, fmt.Errorf("topic %q: partition %d: %w", t.Name, i, err)
		}
		assigned[i] = slices.Clone(replicas)
	}
	return assigned, int16(len(assigned[0])), nil
}

// checkReplicas checks the replicas that a client chose for one partition.
func (d *decision) checkReplicas(replicas []model.NodeID, factor int) error {
	switch {
	case len(replicas) == 0:
		return fmt.Errorf("no replicas: %w", model.ErrInvalidAssignment)
	case len(replicas) != factor:
		return fmt.Errorf("%d replicas where the topic's partitions have %d: %w", len(replicas), factor, model.ErrInvalidAssignment)
	}
	alive, holds := false, false
	for i, n := range replicas {
		if slices.Contains(replicas[:i], n) {
			return fmt.Errorf("broker %d is named twice: %w", n, model.ErrInvalidAssignment)
		}
		b, ok := d.img.Broker(n)
		if !ok {
			return notRegistered(n)
		}
		alive = alive || d.alive(n)
		holds = holds || d.alive(n) && stores(b)
	}
	switch {
	case !alive:
		return fmt.Errorf("none of the brokers %v is up: start one of them, or choose others: %w", replicas, model.ErrInvalidReplication)
	case !holds:
		return fmt.Errorf("of the brokers %v, none that is up has a directory that serves: choose others, or read in their logs what is wrong with their disks: %w", replicas, model.ErrInvalidReplication)
	}
	return nil
}

func (d *decision) newTopicID() model.TopicID {
	for {
		var id model.TopicID
		binary.BigEndian.PutUint64(id[:8], d.rand.Uint64())
		binary.BigEndian.PutUint64(id[8:], d.rand.Uint64())
		id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // version 4, RFC 9562
		// Kafka avoids IDs whose text looks like a flag.
		if _, taken := d.img.Topic(id); !taken && id.String()[0] != '-' {
			return id
		}
	}
}

func (d *decision) deleteTopics(refs []model.TopicRef) []model.TopicResult {
	found := make([]*image.Topic, len(refs))
	times := map[model.TopicID]int{}
	results := make([]model.TopicResult, len(refs))
	for i, ref := range refs {
		results[i] = model.TopicResult{Name: ref.Name, ID: ref.ID}
		t, err := d.find(ref)
		if err != nil {
			results[i].Err = err
			continue
		}
		found[i] = t
		times[t.ID]++
	}
	for i, t := range found {
		if t == nil {
			continue
		}
		results[i].Name, results[i].ID = t.Name, t.ID
		if times[t.ID] > 1 {
			results[i].Err = fmt.Errorf("topic %q is named more than once: %w", t.Name, model.ErrInvalidRequest)
			continue
		}
		d.emit(&image.TopicRemovalRecord{ID: t.ID, Name: t.Name, Directories: directories(t)})
	}
	return results
}

func (d *decision) find(ref model.TopicRef) (*image.Topic, error) {
	if ref.Name != "" {
		if t, ok := d.img.TopicByName(ref.Name); ok {
			return t, nil
		}
		return nil, fmt.Errorf("there is no topic %q: %w", ref.Name, model.ErrUnknownTopicOrPartition)
	}
	if t, ok := d.img.Topic(ref.ID); ok {
		return t, nil
	}
	return nil, fmt.Errorf("topic ID %s: %w", ref.ID, model.ErrUnknownTopicID)
}

// directories are those that hold replicas of the topic, in order.
func directories(t *image.Topic) []model.DirectoryID {
	seen := map[model.DirectoryID]bool{{}: true}
	var dirs []model.DirectoryID
	for _, p := range t.Partitions {
		for _, dir := range p.Directories {
			if !seen[dir] {
				seen[dir] = true
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

func (d *decision) createPartitions(op CreatePartitions) []error {
	before := *d
	seen := map[string]int{}
	for _, more := range op.More {
		seen[more.Topic]++
	}
	errs := make([]error, len(op.More))
	budget := d.cfg.RequestPartitionsMax
	place := newPlacer(d.img, d.rand)
	for i, more := range op.More {
		if seen[more.Topic] > 1 {
			errs[i] = fmt.Errorf("topic %q is named more than once: %w", more.Topic, model.ErrInvalidRequest)
			continue
		}
		errs[i] = d.morePartitions(more, place, &budget)
	}
	if op.ValidateOnly {
		*d = before
	}
	return errs
}

func (d *decision) morePartitions(more model.MorePartitions, place *placer, budget *int) error {
	t, err := d.find(model.TopicRef{Name: more.Topic})
	if err != nil {
		return err
	}
	have := len(t.Partitions)
	if int(more.Count) <= have {
		return fmt.Errorf("topic %q has %d partitions; their number can only grow, and not to %d: %w", t.Name, have, more.Count, model.ErrInvalidPartitions)
	}
	adding := int(more.Count) - have
	if err := d.checkGrowth(t.Name, adding, *budget); err != nil {
		return err
	}
	assigned := more.Assignment
	if assigned == nil {
		if assigned, err = d.placeMore(t, adding, place); err != nil {
			return err
		}
	} else if err := d.checkMore(t, adding, assigned); err != nil {
		return err
	}
	*budget -= adding
	records := make([]image.Record, adding)
	for i, replicas := range assigned {
		p := model.Partition{Topic: t.ID, Index: int32(have + i)}
		records[i] = &image.PartitionRecord{Partition: p, Registration: d.registration(slices.Clone(replicas))}
	}
	d.emit(records...)
	return nil
}

// placeMore gives new partitions the topic's target where the brokers allow it,
// and no fewer replicas than the others have while enough brokers are
// registered.
func (d *decision) placeMore(t *image.Topic, adding int, place *placer) ([][]model.NodeID, error) {
	unfenced, all := place.usable()
	target := int(t.ReplicationFactorTarget)
	factor := max(min(target, unfenced), min(replicationFactor(t), all))
	if d.cfg.Strict {
		factor = target
	}
	switch {
	case unfenced == 0:
		return nil, fmt.Errorf("topic %q: %s: %w", t.Name, nobodyUp(all), model.ErrInvalidReplication)
	case factor > all:
		return nil, fmt.Errorf("topic %q: %s: %w", t.Name, strictly(factor, all, "name the brokers"), model.ErrInvalidReplication)
	}
	assigned := make([][]model.NodeID, adding)
	for i := range assigned {
		assigned[i] = place.place(factor)
	}
	return assigned, nil
}

func (d *decision) checkMore(t *image.Topic, adding int, assigned [][]model.NodeID) error {
	if len(assigned) != adding {
		return fmt.Errorf("topic %q: %d new partitions and an assignment for %d: %w", t.Name, adding, len(assigned), model.ErrInvalidAssignment)
	}
	for i, replicas := range assigned {
		if err := d.checkReplicas(replicas, replicationFactor(t)); err != nil {
			return fmt.Errorf("topic %q: partition %d: %w", t.Name, len(t.Partitions)+i, err)
		}
	}
	return nil
}

// replicationFactor is what the topic's first partition has.
func replicationFactor(t *image.Topic) int {
	if len(t.Partitions) == 0 {
		return 1
	}
	return len(t.Partitions[0].Replicas)
}
