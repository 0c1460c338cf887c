package member

import "go.etcd.io/etcd/server/v3/etcdserver/api/membership"

// WasRemoved is wasRemoved.
func WasRemoved(id int, members map[int]*membership.Member, gone map[int]bool) bool {
	return wasRemoved(id, members, gone)
}
