package verdict

import (
	"strings"

	"github.com/portolan-mesh/portolan/discovery/kube/remote"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// ClusterFault returns what is wrong with a cluster that a Secret at a path names; the zero Fault for
// nothing.
func (j *Judge) ClusterFault(path, name string) remote.Fault {
	j.Read(ClusterRow, path)
	return j.of.ClusterFaults.Value(remote.FaultKey(path, name))
}

// changedClusters iterates over the rows of Secrets with another fault in each of two facts.
func changedClusters(from, to Facts, yield func(Row) bool) bool {
	for c := range pmap.Diff(from.ClusterFaults, to.ClusterFaults) {
		if !yield(ClusterRow + Row(c.Key[:strings.LastIndexByte(c.Key, '/')])) {
			return false
		}
	}
	return true
}
