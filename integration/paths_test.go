package integration

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	messages "github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/simulate/pathtest"
)

// TestEnvoyPaths: at each level of pathNormalization an Envoy makes of the paths of the table what
// the simulation does.
func TestEnvoyPaths(t *testing.T) {
	t.Parallel()
	static, ports := &bootstrapv3.Bootstrap_StaticResources{}, map[string]int{}
	for _, level := range pathtest.Levels() {
		port := freePort(t)
		ports[level.String()] = port
		static.Listeners = append(static.Listeners, messages.Listener(messages.ListenerOptions{
			Name: level.String(), Host: "127.0.0.1", Port: uint32(port), Direction: corev3.TrafficDirection_INBOUND,
			FilterChains: []*listenerv3.FilterChain{messages.FilterChain(messages.FilterChainOptions{Filters: []*listenerv3.Filter{
				messages.HTTPConnectionManager(messages.HTTPOptions{
					StatPrefix: "http", Normalization: level, Filters: []*hcmv3.HttpFilter{messages.RouterFilter()},
					RouteConfig: messages.RouteConfig(messages.RouteConfigOptions{Name: "paths", VirtualHosts: []*routev3.VirtualHost{
						messages.VirtualHost(messages.VirtualHostOptions{Name: "paths", Domains: []string{"*"}, Routes: []messages.RouteOptions{{
							DirectResponse: &messages.DirectResponse{Status: 200},
							Headers:        messages.Headers{Response: messages.HeaderOps{Set: map[string]string{"x-path": "%REQ(:PATH)%"}}},
						}}}),
					}}),
				}),
			}})},
		}))
	}
	startAlone(t, "paths", &bootstrapv3.Bootstrap{StaticResources: static})
	for _, level := range pathtest.Levels() {
		for _, c := range pathtest.Cases() {
			if got, err := pathSeen(ports[level.String()], c.Path); err != nil || got != c.At(level) {
				t.Errorf("%s: %q is %q, %v, want %q", level, c.Path, got, err, c.At(level))
			}
		}
	}
}

// pathSeen returns the path that a route sees, or the status of the answer if it is not 200.
func pathSeen(port int, path string) (string, error) {
	c, err := net.Dial("tcp", local(port))
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nhost: web.example\r\nconnection: close\r\n\r\n", path); err != nil {
		return "", err
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return "", err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Sprint(response.StatusCode), nil
	}
	return response.Header.Get("x-path"), nil
}
