package filter

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/portolan-mesh/portolan/xds/envoy/accesslog"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// AccessLogs returns the access logs of a network filter, by default none.
func AccessLogs(v *mesh.View) []*accesslogv3.AccessLog { return accessLogs(v, false) }

// ListenerAccessLogs returns the access logs of a listener. They record connections that
// match no filter chain.
func ListenerAccessLogs(v *mesh.View) []*accesslogv3.AccessLog { return accessLogs(v, true) }

func accessLogs(v *mesh.View, noRoute bool) []*accesslogv3.AccessLog {
	path := v.Mesh(mesh.AccessLogFile).GetAccessLogFile()
	if path == "" {
		return nil
	}
	options := accesslog.Options{Path: path, NoRoute: noRoute}
	format := v.Mesh(mesh.AccessLogFormat).GetAccessLogFormat()
	if v.Mesh(mesh.AccessLogEncoding).GetAccessLogEncoding() == meshv1alpha1.MeshConfig_JSON {
		options.JSON = accesslog.JSONFormat(format)
	} else {
		options.Format = format
	}
	return []*accesslogv3.AccessLog{accesslog.New(options)}
}
