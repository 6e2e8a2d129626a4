// Package pluginhost runs the broker's plugins: it finds them, checks them,
// launches them, watches over them, and starts them again when they die.
//
// It owns the processes and nothing that they serve. To the rest of the core a
// plugin's store is a Store, an implementation of storage.Store that stays the
// same over every life of its process, and a plugin's transport is a Transport, which does
// that for transport.Transport. It never opens a log by itself, never
// retries a call, and never decides what a failed call means.
//
// # Where a plugin comes from
//
// A name is looked up in the plugin directory first: an executable file of that
// name is the plugin. Failing that, a plugin of our own is served by the
// broker's own executable in a process like any other. So whoever wants to
// replace one of ours puts a file of its name into the directory. A name with a
// pinned checksum is only ever the file with that checksum.
//
// # Invariants
//
//   - Never two writers: a process is started only after the one before was
//     reaped (host_test.go), and after nothing that it lent is written or read any more
//     (plugin.Store.Abandon; sdk/plugin). The store's own lock, of which the broker holds a
//     share as long as it may write, is the second line.
//   - A process is killed by its handle, never by its number. (sdk/plugin)
//   - A handle from an earlier process is never passed to a later one: it gives
//     ErrGone, also if the numbers repeat. (store_test.go)
//   - A plugin that dies is started again, after 50 ms at first and later after
//     longer, as often as it takes. One that keeps failing before it served is
//     reported and tried slowly; it ends neither the host nor the broker.
//     (host_test.go)
//   - A plugin that is stopped or stuck, so that neither its health check nor
//     any call is answered, is killed and started again. (host_test.go)
//   - A transport's plugin that is started again listens where it did. Links whose
//     connections it has passed go on meanwhile, and an Accept waits. (transport_test.go)
//   - Run returns after every process has ended. (host_test.go)
package pluginhost
