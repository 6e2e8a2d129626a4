package peer

import (
	"strings"
	"testing"
)

func TestKafkaProperties(t *testing.T) {
	three := kafkaProperties("/data", 1, []int{1, 2, 3, 4, 5, 6}, []string{"a=b"})
	for _, want := range []string{
		"node.id=2\n", "controller.quorum.voters=1@127.0.0.1:4,2@127.0.0.1:5,3@127.0.0.1:6\n",
		"listeners=PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:5\n", "log.dirs=/data/broker-2\n",
		"offsets.topic.replication.factor=3\n", "transaction.state.log.min.isr=2\n", "a=b\n",
	} {
		if !strings.Contains(three, want) {
			t.Errorf("%q is missing in\n%s", want, three)
		}
	}
	one := kafkaProperties("/data", 0, []int{1, 2}, nil)
	for _, want := range []string{"node.id=1\n", "voters=1@127.0.0.1:2\n", "listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2\n", "offsets.topic.replication.factor=1\n"} {
		if !strings.Contains(one, want) {
			t.Errorf("%q is missing in\n%s", want, one)
		}
	}
}
