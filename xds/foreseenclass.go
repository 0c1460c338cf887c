package xds

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
)

// Reclassed says what an operation changes of what attaches to a connected proxy, because it
// gives the proxy other labels or another locality.
type Reclassed struct {
	Op            int // the index of the operation
	Proxy         *discovery.Proxy
	Before, After class.Attached
}

// Reclassed returns what operations on WorkloadEntries change of what attaches to the proxies of
// this server that are at their addresses. Other objects may attach anew as well, which is what
// they are for. Its cost follows the operations if no proxy is at such an address.
func (s *DiscoveryServer) Reclassed(ops []storage.Op) []Reclassed {
	c := s.committed.Load()
	if c == nil {
		return nil
	}
	at := map[string]int{} // the operation, by address
	for i, op := range ops {
		for _, object := range []*config.Config{op.Config, c.inputs.Configs.Get(op.Target())} {
			if object == nil {
				continue
			}
			if spec, ok := object.Spec.(*networking.WorkloadEntry); ok && spec.GetAddress() != "" {
				at[spec.GetAddress()] = i
			}
		}
	}
	if len(at) == 0 {
		return nil
	}
	var out []Reclassed
	for _, connection := range s.all() {
		note, ok := connection.note.Read()
		if !ok || !isProxy(note.Proxy) || slices.ContainsFunc(out, func(r Reclassed) bool { return r.Proxy.ID == note.Proxy.ID }) {
			continue
		}
		for _, ip := range note.Proxy.IPAddresses {
			if op, ok := at[ip]; ok {
				out = append(out, Reclassed{Op: op, Proxy: note.Proxy})
				break
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	is, would, known := s.WouldBe(ops)
	if !known {
		return nil
	}
	for i := range out {
		out[i].Before, out[i].After = is.Context.ClassOf(out[i].Proxy).Attached, would.Context.ClassOf(out[i].Proxy).Attached
	}
	return slices.DeleteFunc(out, func(r Reclassed) bool { return r.Before == r.After })
}
