package controller

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/image/topicconfig"
	"github.com/brokerd/brokerd/core/model"
)

const uncleanKey = "unclean.leader.election.enable"

func (d *decision) alterConfigs(op AlterConfigs) []error {
	before := *d
	seen := map[model.Resource]int{}
	for _, c := range op.Changes {
		seen[c.Resource]++
	}
	errs := make([]error, len(op.Changes))
	unclean := false
	for i, c := range op.Changes {
		if seen[c.Resource] > 1 {
			errs[i] = fmt.Errorf("resource %q is named more than once: %w", c.Resource.Name, model.ErrInvalidRequest)
			continue
		}
		errs[i] = d.alterConfig(c)
		unclean = unclean || slices.ContainsFunc(c.Ops, func(op model.ConfigOp) bool { return op.Key == uncleanKey })
	}
	d.changeMinISR(&before, op.Changes)
	if unclean {
		d.electLeaderless()
	}
	if op.ValidateOnly {
		*d = before
	}
	return errs
}

// changeMinISR gives partitions whose effective min ISR has changed another partition
// epoch. So a leader that asks for an ISR knows the minimum that the controller goes by:
// what is committed under it, and who then is in the ELR, rests on both being the same.
func (d *decision) changeMinISR(before *decision, changes []model.ConfigChange) {
	all, topics := false, map[string]bool{}
	for _, c := range changes {
		if before.img.Config(c.Resource)[image.MinISRKey] == d.img.Config(c.Resource)[image.MinISRKey] {
			continue
		}
		topics[c.Resource.Name] = c.Resource.Type == model.ResourceTopic
		all = all || c.Resource == model.BrokerResource(model.NoNode)
	}
	if !all && len(topics) == 0 {
		return
	}
	d.eachPartition(func(t *image.Topic, n int32, p *image.Partition) *edit {
		if !all && !topics[t.Name] || before.minISR(t, p.Counted()) == d.minISR(t, p.Counted()) {
			return nil
		}
		e := d.edit(t, n)
		e.raise = true
		return e
	})
}

// alterConfig changes one resource, all or nothing. (KIP-339)
func (d *decision) alterConfig(c model.ConfigChange) error {
	if err := d.checkResource(c.Resource); err != nil {
		return err
	}
	old := d.img.Config(c.Resource)
	changed := maps.Clone(old)
	if changed == nil || c.Replace {
		changed = map[string]string{}
	}
	keys := map[string]bool{}
	for _, op := range c.Ops {
		if keys[op.Key] {
			return fmt.Errorf("setting %s is changed twice: %w", op.Key, model.ErrInvalidRequest)
		}
		keys[op.Key] = true
		if err := d.alterKey(c.Resource, changed, op); err != nil {
			return err
		}
	}
	if err := d.checkChanged(c.Resource, changed); err != nil {
		return err
	}
	d.emit(difference(c.Resource, old, changed)...)
	return nil
}

func (d *decision) checkResource(r model.Resource) error {
	switch r.Type {
	case model.ResourceTopic:
		_, err := d.find(model.TopicRef{Name: r.Name})
		if r.Name == "" {
			return fmt.Errorf("the topic has no name: %w", model.ErrInvalidRequest)
		}
		return err
	case model.ResourceBroker:
		if r.Name == "" {
			return nil
		}
		id, err := strconv.ParseInt(r.Name, 10, 32)
		if err != nil || id < 0 || r != model.BrokerResource(model.NodeID(id)) {
			return fmt.Errorf("broker %q is not a node ID, nor empty for all brokers: %w", r.Name, model.ErrInvalidRequest)
		}
		if _, ok := d.img.Broker(model.NodeID(id)); !ok {
			return fmt.Errorf("there is no broker %d: %w", id, model.ErrInvalidRequest)
		}
		return nil
	}
	return fmt.Errorf("resource type %d has no settings here: %w", r.Type, model.ErrInvalidRequest)
}

// alterKey does one operation on the settings of a resource.
func (d *decision) alterKey(r model.Resource, settings map[string]string, op model.ConfigOp) error {
	if op.Kind == model.ConfigDelete {
		delete(settings, op.Key)
		return nil
	}
	if op.Value == nil {
		return fmt.Errorf("setting %s has no value: %w", op.Key, model.ErrInvalidRequest)
	}
	if len(*op.Value) > configBytesMax {
		return fmt.Errorf("setting %s has a value of %d bytes: at most %d: %w", op.Key, len(*op.Value), configBytesMax, model.ErrInvalidConfig)
	}
	switch op.Kind {
	case model.ConfigSet:
		settings[op.Key] = *op.Value
		return nil
	case model.ConfigAppend, model.ConfigSubtract:
	default:
		return fmt.Errorf("setting %s: unknown operation %d: %w", op.Key, op.Kind, model.ErrInvalidRequest)
	}
	def, ok := definition(r, op.Key)
	if !ok || def.Type != topicconfig.List {
		return fmt.Errorf("setting %s is not a list: it can be set, not appended to or subtracted from: %w", op.Key, model.ErrInvalidConfig)
	}
	elements := topicconfig.SplitList(d.inForce(r, def, settings, op.Key))
	for _, e := range topicconfig.SplitList(*op.Value) {
		at := slices.Index(elements, e)
		switch {
		case op.Kind == model.ConfigAppend && at < 0:
			elements = append(elements, e)
		case op.Kind == model.ConfigSubtract && at >= 0:
			elements = slices.Delete(elements, at, at+1)
		}
	}
	settings[op.Key] = strings.Join(elements, ",")
	return nil
}

func definition(r model.Resource, key string) (topicconfig.Definition, bool) {
	if r.Type == model.ResourceTopic {
		return topicconfig.Lookup(key)
	}
	return topicconfig.LookupOnBroker(key)
}

// inForce is the value that an operation on a list begins with: the resource's
// own, else the one that it would have.
func (d *decision) inForce(r model.Resource, def topicconfig.Definition, settings map[string]string, key string) string {
	if own, ok := settings[key]; ok {
		return own
	}
	defaults := d.cfg.TopicDefaults
	if r != model.BrokerResource(model.NoNode) {
		defaults = d.img.BrokerDefaults(model.NoNode, defaults)
	}
	if v, _, ok := def.FromBroker(defaults); ok {
		return v
	}
	return def.Default
}

func (d *decision) checkChanged(r model.Resource, settings map[string]string) error {
	if r.Type == model.ResourceTopic {
		return checkConfigs(r.Name, settings)
	}
	if err := checkConfigBytes(settings); err != nil {
		return err
	}
	if err := d.checkBroker(r, settings); err != nil {
		return fmt.Errorf("%w: %w", err, model.ErrInvalidConfig)
	}
	return nil
}

// checkBroker checks what is to be set for one broker or for all: by itself, and
// together with what is set for all or for each one.
func (d *decision) checkBroker(r model.Resource, settings map[string]string) error {
	if err := topicconfig.ValidateBroker(settings); err != nil {
		return err
	}
	all := model.BrokerResource(model.NoNode)
	if r != all {
		if err := topicconfig.ValidateOneBroker(settings); err != nil {
			return err
		}
		return together(r, d.img.Config(all), settings)
	}
	for b := range d.img.Brokers() {
		one := model.BrokerResource(b.ID)
		if err := together(one, settings, d.img.Config(one)); err != nil {
			return err
		}
	}
	return nil
}

func together(one model.Resource, all, own map[string]string) error {
	if len(own) == 0 {
		return nil
	}
	both := make(map[string]string, len(all)+len(own))
	topicconfig.Overlay(both, all)
	topicconfig.Overlay(both, own)
	if err := topicconfig.ValidateBroker(both); err != nil {
		return fmt.Errorf("on broker %s: %w", one.Name, err)
	}
	return nil
}

// difference is the records that lead from old to changed, in key order.
func difference(r model.Resource, old, changed map[string]string) []image.Record {
	var records []image.Record
	for _, key := range slices.Sorted(maps.Keys(old)) {
		if _, ok := changed[key]; !ok {
			records = append(records, &image.ConfigRecord{Resource: r, Key: key, Unset: true})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(changed)) {
		if v, ok := old[key]; !ok || v != changed[key] {
			records = append(records, &image.ConfigRecord{Resource: r, Key: key, Value: changed[key]})
		}
	}
	return records
}
