// Package coordinator hosts the groups whose coordinator this broker is: one
// machine of core/group for each partition of the offsets topic that it leads, on a
// few loops.
//
// It owns which machines there are, the reading of their logs, the writing of what
// they ask for, and the offsets topic's creation. It never decides what becomes of a
// group, and never touches a store: it reads and writes as clients do, through
// model.Partitions.
package coordinator
