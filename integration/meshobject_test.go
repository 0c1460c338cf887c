package integration

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// meshObject returns a MeshConfig with fields of its spec in YAML.
func meshObject(spec string) string {
	return "apiVersion: portolan.io/v1\nkind: MeshConfig\nmetadata: {name: default, namespace: istio-system}\nspec: " + spec + "\n"
}

// said returns an outcome with what was written to stderr behind the rest.
func said(o outcome) outcome {
	o.stdout += o.stderr
	return o
}

// TestEnvoyMeshObject: the object of the mesh configuration lies over the file. It is written, rolled
// back and deleted like any other, and proxies follow.
func TestEnvoyMeshObject(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{meshConfig: "defaultHttpRetryPolicy: {attempts: 4}\n"}), newShop(t)
		s.apply(x.entry(x.v1))
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		known, unknown := request{port: x.service, host: shopHost}, request{port: x.service, host: "unknown.test"}
		awaitReply(t, known, "v1")
		client.awaitConfig(`"num_retries": 4`)
		passes := func() {
			eventually(t, "the sidecar lets unknown hosts pass", func() error {
				if got, err := do(t.Context(), clientOf(t), unknown); err != nil || got.String() == "502" {
					return fmt.Errorf("it answers %s, %w", got, err)
				}
				return nil
			})
		}
		passes()

		log := filepath.Join(t.TempDir(), "access.log")
		first := s.apply(meshObject("{outboundTrafficPolicy: {mode: REGISTRY_ONLY}, defaultHttpRetryPolicy: {attempts: 7}, accessLogFile: " + log + "}"))
		s.awaitSynced(first, "client")
		awaitReply(t, unknown, "502")
		client.awaitConfig(`"num_retries": 7`)
		eventually(t, "the access log has requests", func() error {
			awaitReply(t, known, "v1")
			text, err := os.ReadFile(log)
			if err == nil && !strings.Contains(string(text), shopHost) {
				err = errors.New("it has none")
			}
			return err
		})
		expectOutcome(t, "the mesh", s.try("", "describe", "mesh"), 0, "outboundTrafficPolicy", "object", "connectTimeout", "default")

		// Nothing of a proxy reads the field, so it gets nothing. The object says that it has no effect.
		before := client.mustHold()
		out := s.applyWait([]string{meshObject("{outboundTrafficPolicy: {mode: REGISTRY_ONLY}, defaultHttpRetryPolicy: {attempts: 7}, accessLogFile: " + log + ", enablePrometheusMerge: true}")})
		expectOutcome(t, "a field without effect", said(out), 3, "no proxy is concerned", "spec.enablePrometheusMerge has no effect here: Kubernetes only")
		s.awaitSynced(s.revision(), "client")
		if after := client.mustHold(); !maps.Equal(before, after) {
			t.Errorf("the proxy got what is not new: %v, then %v", before, after)
		}
		eventually(t, "the condition of the object names the field", func() error {
			if out := s.must("", "get", "meshconfig", "default", "-n", "istio-system", "-o", "yaml"); !strings.Contains(out, "enablePrometheusMerge has no effect here") {
				return errors.New(out)
			}
			return nil
		})

		s.awaitSynced(s.apply(meshObject("{defaultHttpRetryPolicy: {attempts: 9}}")), "client")
		client.awaitConfig(`"num_retries": 9`)
		passes()
		s.must("", "rollback", "meshconfig/default", "-n", "istio-system", "--yes", "--to-revision", fmt.Sprint(first))
		client.awaitConfig(`"num_retries": 7`)
		awaitReply(t, unknown, "502")

		s.remove(meshObject("{}"))
		client.awaitConfig(`"num_retries": 4`)
		passes()
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestMeshObjectRefused: a bad MeshConfig is refused with all its faults, and what came with it. Fields
// that servers read at their start are refused, and any other name or namespace.
func TestMeshObjectRefused(t *testing.T) {
	t.Parallel()
	s, x := startServer(t, serverOptions{}), newShop(t)
	out := s.try(strings.Join([]string{x.entry(x.v1), meshObject("{connectTimeout: 0s, rootNamespace: mesh, trustDomain: mesh.test}")}, "\n---\n"), "apply", "-f", "-")
	expectOutcome(t, "faults", said(out), 65, "spec.connectTimeout: must be at least 1ms", "spec.rootNamespace: set it in the file of --mesh-config and restart the servers", "spec.trustDomain: set it in the file")
	if out := s.try("", "get", "se", "reviews", "-n", "shop"); out.code == 0 {
		t.Errorf("a part of the batch is written: %+v", out)
	}
	elsewhere := strings.NewReplacer("istio-system", "shop").Replace(meshObject("{connectTimeout: 2s}"))
	for _, args := range [][]string{{"apply", "-f", "-"}, {"apply", "-f", "-", "--dry-run=server"}, {"create", "-f", "-"}} {
		expectOutcome(t, "elsewhere", said(s.try(elsewhere, args...)), 65, "the MeshConfig is in the root namespace of the mesh: apply it with -n istio-system")
	}
	expectOutcome(t, "another name", said(s.try(strings.Replace(meshObject("{}"), "name: default", "name: mine", 1), "apply", "-f", "-")), 65, "metadata.name: must be default")
	expectOutcome(t, "a dry run", s.try(meshObject("{connectTimeout: 2s}"), "apply", "-f", "-", "--dry-run=server"), 0, "created")
	expectOutcome(t, "a difference", s.try(meshObject("{connectTimeout: 2s}"), "diff", "-f", "-"), 2, "connectTimeout: 2s")
}

// TestMeshObjectOnTwoServers: both servers of a store follow the object, and make the same of it.
func TestMeshObjectOnTwoServers(t *testing.T) {
	t.Parallel()
	etcd, x := startEtcd(t), newShop(t)
	one, two := startServer(t, serverOptions{etcd: etcd}), startServer(t, serverOptions{etcd: etcd})
	one.apply(x.all(50, 50))
	types := []string{xdstest.ClusterType, xdstest.ListenerType}
	clients := []*xdstest.Client{one.agentOf("a", "10.0.0.7", ""), two.agentOf("b", "10.0.0.8", "")}
	versions := func(c *xdstest.Client) map[string]string {
		out := map[string]string{}
		for _, typ := range types {
			for name, held := range c.Held(typ) {
				out[typ+" "+name] = held.Version
			}
		}
		return out
	}
	expectSame := func(what string) map[string]string {
		t.Helper()
		eventually(t, what+": the servers make the same", func() error {
			a, b := versions(clients[0]), versions(clients[1])
			if len(a) == 0 || !maps.Equal(a, b) {
				return fmt.Errorf("%v and %v", a, b)
			}
			return nil
		})
		return versions(clients[0])
	}
	before := expectSame("without an object")
	two.apply(meshObject("{connectTimeout: 2s, accessLogFile: /dev/stdout, tcpKeepalive: {time: 60s}}"))
	eventually(t, "the clients get what the object says", func() error {
		if maps.Equal(versions(clients[0]), before) {
			return errors.New("nothing new")
		}
		return nil
	})
	expectSame("with it")
	one.remove(meshObject("{}"))
	eventually(t, "the clients get what was before", func() error {
		if got := versions(clients[0]); !maps.Equal(got, before) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	expectSame("after it")
}

// TestMeshObjectRejected: a format of access logs that Envoy does not know is the fault of the MeshConfig,
// and of nothing else that the listeners are made of.
func TestMeshObjectRejected(t *testing.T) {
	t.Parallel()
	s, _, q := startPatched(t, protocol.Delta)
	const at = "istio-system"
	out := s.applyWait([]string{meshObject(`{accessLogFile: /dev/null, accessLogFormat: "%NOSUCH%\n"}`)})
	expectOutcome(t, "a bad format", out, 2, "rejected 1")
	eventually(t, "the MeshConfig is blamed", func() error {
		if out := s.must("", "describe", "meshconfig", "default", "-n", at); !strings.Contains(out, "Rejected") || !strings.Contains(out, "NOSUCH") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	s.awaitCondition("gateways", "edge", "Rejected", "", "")
	awaitReply(t, q, "app")
	expectOutcome(t, "a good format", s.applyWait([]string{meshObject(`{accessLogFile: /dev/null, accessLogFormat: "%PROTOCOL%\n"}`)}), 0, "accepted 1")
	eventually(t, "the MeshConfig is acknowledged", func() error {
		if out := s.must("", "describe", "meshconfig", "default", "-n", at); strings.Contains(out, "Rejected") || !strings.Contains(out, "Acknowledged") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}
