package names

import "slices"

// The static clusters of a bootstrap: XDSCluster leads to the control plane, SDSCluster to what serves
// certificates on the proxy's machine. (Istio's bootstrap has the same.)
const XDSCluster, SDSCluster = "xds-grpc", "sds-grpc"

// guarded are fields of envoy.config.bootstrap.v3.Bootstrap.
var guarded = []string{
	"admin", "bootstrap_extensions", "default_config_source", "dynamic_resources", "hds_config", "node", "node_context_params",
	"xds_config_tracker_extension", "xds_delegate_extension",
}

// GuardedBootstrap says whether a field of Envoy's bootstrap, by its name in protobuf, says who the proxy
// is, whom it obeys, who may command it, or which code it loads.
func GuardedBootstrap(field string) bool { return slices.Contains(guarded, field) }

// GuardedCluster says whether a static cluster of this name leads to whom the proxy trusts.
func GuardedCluster(name string) bool { return name == XDSCluster || name == SDSCluster }
