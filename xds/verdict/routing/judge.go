// Package routing judges VirtualServices and Gateways.
package routing

import "github.com/portolan-mesh/portolan/xds/verdict"

// judge judges one object.
type judge struct{ *verdict.Judge }
