package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestEnvoyMeshDefaults: the mesh configuration decides what no rule sets: TCP keepalive, the
// HTTP version, and the names of clusters in statistics.
func TestEnvoyMeshDefaults(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{meshConfig: `
tcpKeepalive: {probes: 4, time: 77s, interval: 5s}
h2UpgradePolicy: UPGRADE
dnsRefreshRate: 1s
outboundClusterStatName: "%SERVICE%_%SERVICE_PORT_NAME%"
`}), newShop(t)
		s.apply(x.entry(x.v1))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		q := request{port: x.service, host: shopHost}
		awaitReply(t, q, "v1")
		dump, err := client.get("/config_dump?resource=dynamic_active_clusters")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`"keepalive_probes": 4`, `"keepalive_time": 77`, `"keepalive_interval": 5`} {
			if !strings.Contains(string(dump), want) {
				t.Errorf("the clusters lack %s", want)
			}
		}
		stat := "cluster." + shopHost + "_http.upstream_cx_http2_total"
		awaitStat := func(want string) {
			eventually(t, stat+" is "+want, func() error {
				got, err := client.get("/stats?filter=" + stat)
				if err == nil && strings.TrimSpace(string(got)) != stat+": "+want {
					err = fmt.Errorf("it is %q", got)
				}
				return err
			})
		}
		awaitStat("1")
		s.awaitSynced(s.apply(policyFor("{connectionPool: {http: {h2UpgradePolicy: DO_NOT_UPGRADE}}}")), "client")
		awaitReply(t, q, "v1")
		stat = strings.Replace(stat, "http2", "http1", 1)
		awaitStat("1")
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}
