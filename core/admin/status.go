package admin

// Status is the answer of /v1/status. Fields are only ever added.
type Status struct {
	Version    string           `json:"version"`
	ClusterID  string           `json:"cluster_id"`
	Cluster    string           `json:"cluster"` // its name, for people
	NodeID     int32            `json:"node_id"`
	Ready      bool             `json:"ready"`
	Listeners  []ListenerStatus `json:"listeners"`
	Stores     []StoreStatus    `json:"stores"`
	Topics     int              `json:"topics"`
	Partitions int              `json:"partitions"` // replicas on this broker
	Offline    int              `json:"offline"`    // of them, those that do not serve
	Warnings   []string         `json:"warnings"`
}

// ListenerStatus is one listener: what is bound, and what clients are told.
type ListenerStatus struct {
	Name       string `json:"name"`
	Bound      string `json:"bound"`
	Advertised string `json:"advertised"`
}

// StoreStatus is one store and the plugin process behind it.
type StoreStatus struct {
	Name       string `json:"name"`
	Plugin     string `json:"plugin"`
	Directory  string `json:"directory_id"`
	PID        int    `json:"pid"` // 0: no process now
	Restarts   int    `json:"restarts"`
	Healthy    bool   `json:"healthy"`
	Error      string `json:"error,omitempty"`
	TotalBytes int64  `json:"total_bytes"` // 0: not known
	FreeBytes  int64  `json:"free_bytes"`
	Replicas   int    `json:"replicas"`
	// Carrier is what the store's records go by: files, socket or grpc; "" while no
	// process serves.
	Carrier string `json:"carrier,omitempty"`
	Grants  int    `json:"grants"` // logs whose end the broker writes itself
	Leases  int    `json:"leases"` // stretches of files that it reads itself
}
