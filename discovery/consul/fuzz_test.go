package consul

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/portolan-mesh/portolan/discovery"
)

// FuzzAnswer: whatever Consul answers for the instances of a service, the row made of it is
// sound.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`[{"Node":{"Node":"n","Address":"10.0.0.1"},"Service":{"ID":"a","Service":"web","Port":80,"Tags":["http"],"Meta":{"portolan-port":"8080"}},"Checks":[{"Status":"critical"}]}]`))
	f.Add([]byte(`[null,{"Node":{},"Service":{"Service":"web","TaggedAddresses":{"virtual":{"Address":"::1"}},"Ports":[{"Name":"http","Port":99999}]},"Checks":[null]}]`))
	o := &Options{Domain: "service.consul", Namespace: "consul"}
	f.Fuzz(func(t *testing.T, data []byte) {
		var entries []*api.ServiceEntry
		if json.Unmarshal(data, &entries) != nil {
			return
		}
		instances := instancesOf(o, entries)
		var ordered []*instance
		for _, id := range slices.Sorted(maps.Keys(instances)) {
			ordered = append(ordered, instances[id])
		}
		row := rowOf(o, "web", ordered)
		if again := rowOf(o, "web", ordered); len(again.Endpoints) != len(row.Endpoints) || !slices.IsSortedFunc(row.Endpoints, discovery.CompareEndpoints) {
			t.Errorf("%q: %v, then %v", data, row, again)
		}
		for _, e := range row.Endpoints {
			if e.Port < 1 || e.Port > 65535 || e.Address == "" {
				t.Errorf("%q has the endpoint %s:%d", data, e.Address, e.Port)
			}
		}
	})
}
