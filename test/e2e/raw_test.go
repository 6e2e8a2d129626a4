package e2e

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// rawBatch is a batch of one record, with a producer's numbers chosen freely.
func rawBatch(value string, producerID int64, epoch int16, sequence int32) []byte {
	body := []byte{0}                    // attributes
	body = binary.AppendVarint(body, 0)  // timestamp delta
	body = binary.AppendVarint(body, 0)  // offset delta
	body = binary.AppendVarint(body, -1) // null key
	body = binary.AppendVarint(body, int64(len(value)))
	body = append(body, value...)
	body = binary.AppendVarint(body, 0) // headers
	now := time.Now().UnixMilli()
	return recordbatch.Build(nil, recordbatch.Header{
		Info: recordbatch.Info{
			LeaderEpoch: -1, BaseTimestamp: now, MaxTimestamp: now,
			ProducerID: producerID, ProducerEpoch: epoch, BaseSequence: sequence, Records: 1,
		},
		Payload: append(binary.AppendVarint(nil, int64(len(body))), body...),
	})
}

// rawProduce sends one batch to partition 0 and returns the answer for it.
func rawProduce(t *testing.T, c *kgo.Client, topic string, batch []byte) kmsg.ProduceResponseTopicPartition {
	t.Helper()
	ctx := testContext(t, startTimeout)
	topics, err := kadm.NewClient(c).ListTopics(ctx, topic)
	if err != nil || topics.Error() != nil {
		t.Fatalf("topic %s: %v %v", topic, err, topics.Error())
	}
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = batch
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID, rt.Partitions = topic, topics[topic].ID, []kmsg.ProduceRequestTopicPartition{part}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis, req.Topics = -1, 2000, []kmsg.ProduceRequestTopic{rt}
	resp, err := req.RequestWith(ctx, c)
	if err != nil {
		t.Fatalf("produce: %v", err)
	}
	return resp.Topics[0].Partitions[0]
}

// initProducerID asks for a producer ID.
func initProducerID(t *testing.T, c *kgo.Client) (id int64, epoch int16) {
	t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = 60_000, -1, -1
	resp, err := req.RequestWith(testContext(t, startTimeout), c)
	if err != nil || resp.ErrorCode != 0 {
		t.Fatalf("init producer ID: %v, code %d", err, resp.ErrorCode)
	}
	return resp.ProducerID, resp.ProducerEpoch
}
