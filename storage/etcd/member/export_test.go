package member

import "go.etcd.io/etcd/server/v3/etcdserver/api/membership"

// WasRemoved is wasRemoved.
func WasRemoved(id int, members map[int]*membership.Member, gone map[int]bool) bool {
	return wasRemoved(id, members, gone)
}

// For tests of code that affects only timing.
var (
	EtcdConfig = etcdConfig
	AwaitReady = awaitReady
)

// Pace says for each of some intervals whether the process is probed in it.
func Pace(awaited []bool) (asked []bool) {
	var p pace
	for _, a := range awaited {
		asked = append(asked, p.due(a))
	}
	return asked
}
