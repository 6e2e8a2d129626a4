package plugin

import (
	"context"
	"errors"
	"strings"
	"time"

	pluginv1 "github.com/brokerd/brokerd/sdk/proto/plugin/v1"
	storagev1 "github.com/brokerd/brokerd/sdk/proto/storage/v1"
	"github.com/brokerd/brokerd/sdk/storage"
)

// wireClass is a class of error in both worlds.
type wireClass struct {
	wire     pluginv1.Class
	sentinel error
}

// wireClasses are all of them.
func wireClasses() [7]wireClass {
	return [...]wireClass{
		{pluginv1.Class_CLASS_RETRY, storage.ErrRetry},
		{pluginv1.Class_CLASS_FENCED, storage.ErrFenced},
		{pluginv1.Class_CLASS_CORRUPT, storage.ErrCorrupt},
		{pluginv1.Class_CLASS_FULL, storage.ErrFull},
		{pluginv1.Class_CLASS_GONE, storage.ErrGone},
		{pluginv1.Class_CLASS_INVALID, storage.ErrInvalid},
		{pluginv1.Class_CLASS_UNKNOWN, storage.ErrUnknown},
	}
}

// splitError takes an error apart for the wire: its class, and its message,
// without the class where that stands before it anyway. A context's end without
// a class is an unknown outcome; any other error without one is gone.
func splitError(err error) (pluginv1.Class, string) {
	message := err.Error()
	var e *storage.Error
	if errors.As(err, &e) && e.Error() == message {
		message = e.Message
	}
	message = wireText(message)
	for _, c := range wireClasses() {
		if errors.Is(err, c.sentinel) {
			return c.wire, message
		}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return pluginv1.Class_CLASS_UNKNOWN, message
	}
	return pluginv1.Class_CLASS_GONE, message
}

// wireText makes a string fit to travel: protobuf refuses what is not UTF-8.
func wireText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// joinError puts an error together again. A class that is not known is gone.
func joinError(class int32, message string) error {
	for _, c := range wireClasses() {
		if c.wire == pluginv1.Class(class) {
			return &storage.Error{Class: c.sentinel, Message: message}
		}
	}
	return &storage.Error{Class: storage.ErrGone, Message: message}
}

func errorToProto(err error) *pluginv1.Error {
	if err == nil {
		return nil
	}
	class, message := splitError(err)
	return &pluginv1.Error{Class: class, Message: message}
}

// errorFromProto reads an error; a missing one and one without a class (in a
// list that has one for each handle) are successes.
func errorFromProto(e *pluginv1.Error) error {
	if e == nil || e.GetClass() == pluginv1.Class_CLASS_UNSPECIFIED {
		return nil
	}
	return joinError(int32(e.GetClass()), e.GetMessage())
}

func logIDToProto(id storage.LogID) *storagev1.LogID {
	return &storagev1.LogID{Topic: id.Topic[:], Partition: id.Partition}
}

func logIDFromProto(m *storagev1.LogID) (storage.LogID, error) {
	id := storage.LogID{Partition: m.GetPartition()}
	if len(m.GetTopic()) != len(id.Topic) {
		return id, storage.Errorf(storage.ErrInvalid, "a topic ID has %d bytes, not %d", len(id.Topic), len(m.GetTopic()))
	}
	copy(id.Topic[:], m.GetTopic())
	return id, nil
}

func directoryIDFromProto(b []byte) (storage.DirectoryID, error) {
	var id storage.DirectoryID
	if len(b) != len(id) {
		return id, storage.Errorf(storage.ErrInvalid, "a directory ID has %d bytes, not %d", len(id), len(b))
	}
	copy(id[:], b)
	return id, nil
}

func openSpecToProto(s storage.OpenSpec) *storagev1.OpenSpec {
	return &storagev1.OpenSpec{
		Id:          logIDToProto(s.ID),
		Label:       wireText(s.Label),
		Create:      s.Create,
		LeaderEpoch: s.LeaderEpoch,
		Options: &storagev1.LogOptions{
			SegmentBytes:       s.Options.SegmentBytes,
			SegmentAgeNs:       int64(s.Options.SegmentAge),
			IndexIntervalBytes: s.Options.IndexIntervalBytes,
		},
	}
}

func openSpecFromProto(m *storagev1.OpenSpec) (storage.OpenSpec, error) {
	id, err := logIDFromProto(m.GetId())
	return storage.OpenSpec{
		ID:          id,
		Label:       m.GetLabel(),
		Create:      m.GetCreate(),
		LeaderEpoch: m.GetLeaderEpoch(),
		Options: storage.LogOptions{
			SegmentBytes:       m.GetOptions().GetSegmentBytes(),
			SegmentAge:         time.Duration(m.GetOptions().GetSegmentAgeNs()),
			IndexIntervalBytes: m.GetOptions().GetIndexIntervalBytes(),
		},
	}, err
}

func openResultToProto(r storage.OpenResult) *storagev1.OpenResult {
	m := &storagev1.OpenResult{
		Error:    errorToProto(r.Err),
		Handle:   uint64(r.Handle),
		LogStart: r.LogStart,
		Leo:      r.LEO,
		Durable:  r.Durable,
		Verdict:  storagev1.Verdict(r.Verdict),
		Cut:      wireText(r.Cut),
	}
	for _, e := range r.Epochs {
		m.Epochs = append(m.Epochs, &storagev1.EpochStart{Epoch: e.Epoch, Start: e.Start})
	}
	return m
}

func openResultFromProto(m *storagev1.OpenResult) storage.OpenResult {
	if err := errorFromProto(m.GetError()); err != nil {
		return storage.OpenResult{Err: err}
	}
	if h := m.GetHandle(); h == 0 || h > MaxHandle {
		return storage.OpenResult{Err: storage.Errorf(storage.ErrGone, "the plugin gave handle %d, which is none", h)}
	}
	r := storage.OpenResult{
		Handle:   storage.Handle(m.GetHandle()),
		LogStart: m.GetLogStart(),
		LEO:      m.GetLeo(),
		Durable:  m.GetDurable(),
		Verdict:  storage.Verdict(m.GetVerdict()),
		Cut:      m.GetCut(),
	}
	for _, e := range m.GetEpochs() {
		r.Epochs = append(r.Epochs, storage.EpochStart{Epoch: e.GetEpoch(), Start: e.GetStart()})
	}
	return r
}

func batchInfoToProto(b storage.BatchInfo) *storagev1.BatchInfo {
	return &storagev1.BatchInfo{
		BaseOffset:    b.BaseOffset,
		LastOffset:    b.LastOffset,
		LeaderEpoch:   b.LeaderEpoch,
		Bytes:         b.Bytes,
		Attributes:    int32(b.Attributes),
		BaseTimestamp: b.BaseTimestamp,
		MaxTimestamp:  b.MaxTimestamp,
		ProducerId:    b.ProducerID,
		ProducerEpoch: int32(b.ProducerEpoch),
		BaseSequence:  b.BaseSequence,
		Records:       b.Records,
	}
}

func batchInfoFromProto(m *storagev1.BatchInfo) storage.BatchInfo {
	return storage.BatchInfo{
		BaseOffset:    m.GetBaseOffset(),
		LastOffset:    m.GetLastOffset(),
		LeaderEpoch:   m.GetLeaderEpoch(),
		Bytes:         m.GetBytes(),
		Attributes:    int16(m.GetAttributes()),
		BaseTimestamp: m.GetBaseTimestamp(),
		MaxTimestamp:  m.GetMaxTimestamp(),
		ProducerID:    m.GetProducerId(),
		ProducerEpoch: int16(m.GetProducerEpoch()),
		BaseSequence:  m.GetBaseSequence(),
		Records:       m.GetRecords(),
	}
}

// policyToProto encodes a policy; the zero time travels as zero.
func policyToProto(h storage.Handle, p storage.RetainPolicy) *storagev1.RetainRequest {
	m := &storagev1.RetainRequest{
		Handle:   uint64(h),
		Ceiling:  p.Ceiling,
		MaxAgeNs: int64(p.MaxAge),
		MaxBytes: p.MaxBytes,
	}
	if !p.Now.IsZero() {
		m.NowNs = p.Now.UnixNano()
	}
	return m
}

func policyFromProto(m *storagev1.RetainRequest) storage.RetainPolicy {
	p := storage.RetainPolicy{
		Ceiling:  m.GetCeiling(),
		MaxAge:   time.Duration(m.GetMaxAgeNs()),
		MaxBytes: m.GetMaxBytes(),
	}
	if m.GetNowNs() != 0 {
		p.Now = time.Unix(0, m.GetNowNs())
	}
	return p
}

// capabilitiesToProto encodes what a store offers on a connection with so many lanes
// beside gRPC. Without one its files cannot be lent.
func capabilitiesToProto(c storage.Capabilities, lanes []string) *pluginv1.Capabilities {
	return &pluginv1.Capabilities{
		Lanes: lanes,
		Storage: &pluginv1.StorageCapabilities{
			Survives: pluginv1.Survives(c.Survives),
			Shared:   c.Shared,
			Grants:   c.Grants && len(lanes) > 0,
			Leases:   c.Leases && len(lanes) > 0,
		},
	}
}

// capabilitiesFromProto reads them. Grants and leases are this package's to use.
func capabilitiesFromProto(m *pluginv1.Capabilities) storage.Capabilities {
	return storage.Capabilities{
		Survives: storage.Survives(m.GetStorage().GetSurvives()),
		Shared:   m.GetStorage().GetShared(),
		Grants:   m.GetStorage().GetGrants(),
		Leases:   m.GetStorage().GetLeases(),
	}
}
