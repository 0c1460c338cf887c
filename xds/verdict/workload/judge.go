// Package workload judges Sidecars, ServiceEntries and WorkloadEntries.
package workload

import "github.com/portolan-mesh/portolan/xds/verdict"

// judge judges one object.
type judge struct{ *verdict.Judge }
