package serviceentry_test

import (
	"fmt"
	"runtime"
	"testing"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestAHostOfTheLargestServiceEntryCostsAsMuch: adding or removing a host costs as much as in
// an entry with a tenth of the hosts.
func TestAHostOfTheLargestServiceEntryCostsAsMuch(t *testing.T) {
	cost := func(hosts int) (allocations, bytes float64) {
		m := start(t, serviceentry.Options{})
		large := with(entry(t, "large", `{`+httpPort+`, resolution: STATIC, endpoints: [{address: 10.0.0.1}, {address: 10.0.0.2}]}`), func(c *config.Config) {
			for i := range hosts {
				c.Spec.(*networking.ServiceEntry).Hosts = append(c.Spec.(*networking.ServiceEntry).Hosts, fmt.Sprintf("h%d.example", i))
			}
		})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m.apply(large)
		runtime.ReadMemStats(&after)
		expect(t, len(m.xds.Rows()), hosts)
		return float64(after.Mallocs-before.Mallocs) / float64(hosts), float64(after.TotalAlloc-before.TotalAlloc) / float64(hosts)
	}
	cost(100) // warms up
	few, fewBytes := cost(schema.MaxServiceHosts / 10)
	many, manyBytes := cost(schema.MaxServiceHosts)
	t.Logf("a host takes %.0f allocations and %.0f bytes of %d, %.0f and %.0f of %d", few, fewBytes, schema.MaxServiceHosts/10, many, manyBytes, schema.MaxServiceHosts)
	if many > 1.5*few || manyBytes > 2*fewBytes {
		t.Errorf("a host takes %.0f allocations and %.0f bytes among few, %.0f and %.0f among many", few, fewBytes, many, manyBytes)
	}
}
