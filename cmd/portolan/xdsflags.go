package main

import (
	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/xds"
)

// xdsFlags say how proxies are served.
type xdsFlags struct{ routeDelta string }

// The values of --route-delta.
const (
	routeDeltaAuto = "auto"
	routeDeltaOff  = "off"
)

func (o *xdsFlags) register(f *pflag.FlagSet) {
	f.StringVar(&o.routeDelta, "route-delta", routeDeltaAuto, "auto sends an Envoy that takes virtual hosts one by one only those that changed; off sends whole route tables to all")
}

// validate reports what is wrong with the flags.
func (o *xdsFlags) validate(add addFault) {
	if o.routeDelta != routeDeltaAuto && o.routeDelta != routeDeltaOff {
		add("route-delta", "%q is neither auto nor off", o.routeDelta)
	}
}

// apply sets what flags that are valid say.
func (o *xdsFlags) apply(to *xds.Options) { to.WholeRoutes = o.routeDelta == routeDeltaOff }
