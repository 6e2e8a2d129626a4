package transporttcp

import (
	"net"
	"time"
)

// keepAlive is how the kernel asks whether the host of an idle connection is there.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}
