package load

import (
	"encoding/binary"
	"errors"
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// answer is how a server answers a request of one batch.
func answer(correlation uint32, code int16) []byte {
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = produceVersion
	rt := kmsg.NewProduceResponseTopic()
	rp := kmsg.NewProduceResponseTopicPartition()
	rp.ErrorCode = code
	rt.Partitions = append(rt.Partitions, rp)
	resp.Topics = append(resp.Topics, rt)
	body := resp.AppendTo(append(binary.BigEndian.AppendUint32(nil, correlation), 0))
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func TestAnswers(t *testing.T) {
	short := answer(1, 0)[:20]
	binary.BigEndian.PutUint32(short, 16)
	for _, c := range []struct {
		name  string
		bytes []byte
		ok    bool
		is    error
	}{
		{"well", answer(1, 0), true, nil},
		{"an error of the server", answer(1, kerr.NotLeaderForPartition.Code), false, kerr.NotLeaderForPartition},
		{"another's answer", answer(2, 0), false, nil},
		{"too short", short, false, nil},
		{"too long", []byte{0x7f, 0, 0, 0, 0, 0, 0, 1}, false, nil},
		{"no answer", nil, false, nil},
	} {
		server, client := net.Pipe()
		go func() {
			_, _ = server.Write(c.bytes)
			server.Close()
		}()
		err := (&producer{c: client, in: make([]byte, 4096)}).receive()
		if (err == nil) != c.ok || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v", c.name, err)
		}
		client.Close()
	}
}

// Answers come in pieces and together.
func TestAnswersInPieces(t *testing.T) {
	var all []byte
	const n = 300 // more than the buffer holds
	for i := range n {
		all = append(all, answer(uint32(i+1), 0)...)
	}
	server, client := net.Pipe()
	defer client.Close()
	go func() {
		defer server.Close()
		for len(all) > 0 {
			k := min(1+len(all)%97, len(all))
			if _, err := server.Write(all[:k]); err != nil {
				return
			}
			all = all[k:]
		}
	}()
	p := &producer{c: client, in: make([]byte, 4096)}
	for i := range n {
		if err := p.receive(); err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
	}
}

func TestProgramsTellTheirTime(t *testing.T) {
	const produced = "1201 records sent, 240.1 records/sec (0.02 MB/sec), 1 ms avg latency\n500 records sent, 250.0 records/sec (23.84 MB/sec), 2.40 ms avg latency, 10.00 ms max latency, 1 ms 50th, 2 ms 95th, 3 ms 99th, 4 ms 99.9th.\n"
	r, err := producerPerf(produced, 500, 10)
	if err != nil || r.Elapsed.Seconds() != 2 || r.Records != 500 || r.Bytes != 5000 {
		t.Errorf("producer: %+v, %v", r, err)
	}
	for _, wrong := range []string{"", "499 records sent, 250.0 records/sec", "Exception in thread"} {
		if _, err := producerPerf(wrong, 500, 10); err == nil {
			t.Errorf("producer: %q is taken", wrong)
		}
	}
	const heading = "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n"
	r, err = consumerPerf(heading+"2026-01-01 00:00:00:000, 2026-01-01 00:00:05:000, 1, 1, 600, 1, 3000, 2000, 1, 1\n", 500, 10)
	if err != nil || r.Elapsed.Seconds() != 2 || r.Records != 500 {
		t.Errorf("consumer: %+v, %v", r, err)
	}
	for _, wrong := range []string{"", heading, heading + "a, b\n", heading + "s, e, 1, 1, 499, 1, 3000, 2000, 1, 1\n"} {
		if _, err := consumerPerf(wrong, 500, 10); err == nil {
			t.Errorf("consumer: %q is taken", wrong)
		}
	}
}
