package clients

import (
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// testCase is what every client is put through that has what it needs.
type testCase struct {
	name  string
	needs []feature
	run   func(r *run, c *client, p program)
}

// codecs are the compressions of the protocol, by their names, as records' attributes
// number them.
var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

func cases() []testCase {
	var all []testCase
	for number, codec := range codecs {
		all = append(all, testCase{
			name: "produce+consume/" + codec, needs: []feature{feature(codec)},
			run: func(r *run, c *client, p program) { roundTrip(r, c, p, codec, uint8(number)) },
		})
	}
	return append(all,
		testCase{name: "idempotent", needs: []feature{idempotent}, run: idempotence},
		testCase{name: "admin", needs: []feature{admin}, run: administer},
	)
}

const (
	// sent is how many records a case sends.
	sent = 500
	// sentPartitions is how many partitions they go to.
	sentPartitions = 3
	// sentAt is the first record's timestamp: some second of the past hour would do, and
	// a fixed number of milliseconds shows in what a failure prints.
	sentAgo = time.Minute
)

// expected is record i as every producer sends it.
func expected(i int, first int64) *kgo.Record {
	return &kgo.Record{
		Key:   fmt.Appendf(nil, "k-%d", i),
		Value: fmt.Appendf(nil, "v-%d-%s", i, strings.Repeat(string(rune('a'+i%26)), 100)),
		Headers: []kgo.RecordHeader{
			{Key: "n", Value: fmt.Append(nil, i)},
			{Key: "empty", Value: []byte{}},
		},
		Timestamp: time.UnixMilli(first + int64(i)),
	}
}

// roundTrip: what the driver sends arrives as it was sent, in batches of the codec,
// and what others sent with that codec the driver reads.
func roundTrip(r *run, c *client, p program, codec string, number uint8) {
	first := time.Now().Add(-sentAgo).UnixMilli()
	topic := r.topic(r.addr, "produced-"+codec, sentPartitions)
	_ = topic
	_, _ = first, number
	r.Fatalf("not written yet")
}

func idempotence(r *run, c *client, p program) { r.Fatalf("not written yet") }

// administer: the driver does all that its client's admin part can.
func administer(r *run, c *client, p program) { r.Fatalf("not written yet") }
