package integration

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// endpointsHost is the host of the service in the scenario with a file of endpoints.
const endpointsHost = "web.mesh.internal"

// endpointsScene is a server that follows a file of endpoints, and a sidecar.
type endpointsScene struct {
	*server
	t    testing.TB
	file string
	port int // of the service
}

// list writes the file, with one group for each upstream. Its label version is the name of the
// upstream.
func (e *endpointsScene) list(up ...*upstream) {
	e.t.Helper()
	groups := []map[string]any{}
	for _, u := range up {
		groups = append(groups, map[string]any{
			"targets": []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(u.port))},
			"labels": map[string]string{
				"portolan_service": "web", "portolan_namespace": "shop", "portolan_protocol": "http", "portolan_port": strconv.Itoa(e.port), "version": u.name,
			},
		})
	}
	text, err := json.Marshal(groups)
	if err != nil {
		e.t.Fatal(err)
	}
	e.write(string(text))
}

func (e *endpointsScene) write(text string) {
	e.t.Helper()
	temporary := filepath.Join(filepath.Dir(e.file), ".targets")
	if err := os.WriteFile(temporary, []byte(text), 0o644); err != nil {
		e.t.Fatal(err)
	}
	if err := os.Rename(temporary, e.file); err != nil {
		e.t.Fatal(err)
	}
}

func (e *endpointsScene) request() request { return request{port: e.port, host: endpointsHost} }

// answered waits until exactly these upstreams answer requests.
func (e *endpointsScene) answered(names ...string) {
	e.t.Helper()
	client := clientOf(e.t)
	eventually(e.t, "answered by "+strings.Join(names, ", "), func() error {
		seen := map[string]int{}
		for range 8 * len(names) {
			got, err := do(e.t.Context(), client, e.request())
			if err != nil {
				return err
			}
			seen[got.String()]++
		}
		if got := typesOf(seen); !slices.Equal(got, names) {
			return fmt.Errorf("by %v", seen)
		}
		return nil
	})
}

// readiness waits until /readyz contains words, or does not.
func (e *endpointsScene) readiness(words string, is bool) {
	e.t.Helper()
	eventually(e.t, fmt.Sprintf("/readyz has %q: %v", words, is), func() error {
		ready, err := e.get("/readyz", nil)
		if err == nil && strings.Contains(string(ready), words) != is {
			err = fmt.Errorf("it is %s", ready)
		}
		return err
	})
}

// TestEndpointsFile follows a file of endpoints while requests run. Listed endpoints get
// requests, removed ones get none, and a broken file removes nothing.
func TestEndpointsFile(t *testing.T) {
	t.Parallel()
	for _, variant := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		t.Run(variant.String(), func(t *testing.T) { followsEndpoints(t, variant) })
	}
}

func followsEndpoints(t *testing.T, variant protocol.Variant) {
	needEnvoy(t)
	e := &endpointsScene{t: t, file: filepath.Join(t.TempDir(), "targets.json"), port: freePort(t)}
	one, two, three := startUpstream(t, "one"), startUpstream(t, "two"), startUpstream(t, "three")
	e.list(one, two)
	e.server = startServer(t, serverOptions{args: []string{"--endpoints-file", e.file}})
	envoy := e.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: variant})
	awaitReply(t, e.request(), "one")
	e.answered("one", "two")
	l := startLoad(t, "sidecar", e.request())
	l.sample(50)

	e.list(two, three)
	e.answered("three", "two")
	for words, args := range map[string][]string{
		endpointsHost: {"describe", "service"}, "from " + e.file + ": group 1": {"describe", "service", endpointsHost},
		"1 service": {"source", "list"}, "targets   2": {"source", "describe", e.file},
	} {
		if out := e.must("", args...); !strings.Contains(out, words) {
			t.Errorf("%v: no %q in\n%s", args, words, out)
		}
	}
	e.write(`[{"targets": [`)
	e.readiness("what it last listed is served", true)
	e.answered("three", "two")
	e.list(one, three)
	e.readiness("what it last listed is served", false)
	e.answered("one", "three")

	e.apply(toVersion("web", endpointsHost, "three"))
	e.answered("three")
	l.expectUnharmed()
	if err := os.Remove(e.file); err != nil {
		t.Fatal(err)
	}
	e.readiness("is gone", true)
	e.answered("three")
	e.list(one, three)
	e.readiness("is gone", false)
	e.expectNothingRejected()
	envoy.expectNothingRejected()
}
