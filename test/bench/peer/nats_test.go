package peer

import "testing"

func TestNATSConfig(t *testing.T) {
	const want = `listen: "127.0.0.1:1234"
jetstream {
  store_dir: "/a/data"
  sync_interval: always
}
`
	if got := string(natsConfig("127.0.0.1:1234", "/a/data", []string{"sync_interval: always"})); got != want {
		t.Errorf("%s, not\n%s", got, want)
	}
}
