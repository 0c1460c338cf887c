// Package destination judges DestinationRules.
package destination

import "github.com/portolan-mesh/portolan/xds/verdict"

// judge judges one object.
type judge struct{ *verdict.Judge }
