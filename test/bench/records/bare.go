package main

// aboutBare says what its columns are.
const aboutBare = "The bare loop is a floor and no broker: one Go process that reads a produce request, checks the batch's CRC, writes it to a file " +
	"and answers, in one goroutine for each connection, over TCP that paces nothing. Each ratio is brokerd's value to that of the bare loop.\n"

// bareProduce is the row's own load on the bare loop, which only the clients of package
// load speak to. It knows no fsync: rows with it have no such side.
func bareProduce(durability string, sides []sideSpec) *sideSpec {
	if durability != pageCache {
		return nil
	}
	return &sideSpec{role: bare, partitions: sides[0].partitions}
}
