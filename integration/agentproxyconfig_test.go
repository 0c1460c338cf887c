package integration

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestAgentFollowsProxyConfig: a machine's Envoy has the threads, the environment, the metadata and
// the statistics that ProxyConfigs say, the nearest level first. A change replaces it in place, and no
// request is lost.
func TestAgentFollowsProxyConfig(t *testing.T) {
	t.Parallel()
	m := runningMachine(t)
	config := func(name, namespace, spec string) string {
		return fmt.Sprintf("apiVersion: networking.istio.io/v1beta1\nkind: ProxyConfig\nmetadata: {name: %s, namespace: %s}\nspec: %s\n", name, namespace, spec)
	}
	await := func(what string, threads int, variable string) {
		t.Helper()
		eventually(t, what, func() error {
			s, err := m.status()
			if err != nil {
				return err
			}
			raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.Envoy.PID))
			if err != nil {
				return err
			}
			line := strings.ReplaceAll(string(raw), "\x00", " ")
			if want := fmt.Sprintf("--concurrency %d ", threads); threads > 0 && !strings.Contains(line+" ", want) || threads == 0 && strings.Contains(line, "--concurrency") {
				return fmt.Errorf("it runs as %s", line)
			}
			if raw, err = os.ReadFile(fmt.Sprintf("/proc/%d/environ", s.Envoy.PID)); err == nil && variable != "" && !strings.Contains(string(raw), variable) {
				err = fmt.Errorf("its environment lacks %s", variable)
			}
			return err
		})
	}
	await("without any", 0, "")
	stop := m.load()
	m.apply(config("all", "istio-system", `{concurrency: 1, environmentVariables: {ANY: "of all", ISTIO_META_IDLE_TIMEOUT: 70s}}`))
	await("that of the mesh", 1, "ANY=of all")
	m.apply(config("shop", "shop", `{concurrency: 2}`), config("mine", "shop", `{selector: {matchLabels: {app: other}}, concurrency: 3}`))
	await("that of the namespace", 2, "ANY=of all")
	m.awaitCall("a request with two threads")
	stop("while the Envoy was replaced")
	text, err := os.ReadFile(m.dir + "/envoy.json")
	if err != nil || !strings.Contains(string(text), `"IDLE_TIMEOUT": "70s"`) {
		t.Errorf("the bootstrap lacks the metadata: %v", err)
	}
	m.remove(config("shop", "shop", "{}"), config("all", "istio-system", "{}"))
	await("none again", 0, "")
	c := startTelemetryCollector(t)
	m.apply(fmt.Sprintf("apiVersion: portolan.io/v1\nkind: MeshConfig\nmetadata: {name: default, namespace: istio-system}\nspec: {defaultConfig: {statsdUdpAddress: 127.0.0.1:%d, envoyMetricsService: {address: 127.0.0.1:%d}}}\n", c.statsd(t), c.grpc))
	c.await(t, "statsd envoy.server.live")
	c.await(t, "metrics server.live")
}
