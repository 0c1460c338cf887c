package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// fedBy returns the arguments of a server that follows another one.
func fedBy(hub *server, v protocol.Variant) []string {
	variant := "delta"
	if v == protocol.StateOfTheWorld {
		variant = "sotw"
	}
	return []string{"--config-source", "xds://" + hub.xds + "?variant=" + variant}
}

// peerOf returns the state of the source that is the other server.
func (s *server) peerOf(hub *server) (serve.SourceStatus, error) {
	var sources serve.SourceList
	if _, err := s.get(serve.SourcesPath, &sources); err != nil {
		return serve.SourceStatus{}, err
	}
	i := slices.IndexFunc(sources.Items, func(of serve.SourceStatus) bool { return of.Name == "xds://"+hub.xds })
	if i < 0 {
		return serve.SourceStatus{}, fmt.Errorf("it is not among %+v", sources.Items)
	}
	return sources.Items[i], nil
}

// awaitFed waits until a server has a number of objects of another, without a problem.
func (s *server) awaitFed(hub *server, objects int) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("the other control plane has given %d objects", objects), func() error {
		of, err := s.peerOf(hub)
		if err != nil {
			return err
		}
		n := 0
		for _, of := range of.Objects {
			n += of
		}
		if n != objects || of.Problem != "" || len(of.Faults) > 0 {
			return fmt.Errorf("%+v", of)
		}
		return nil
	})
}

// TestConfigOfAnotherControlPlane serves the objects of another server. A change there reaches
// the proxies here, and nothing is lost while that server is down.
func TestConfigOfAnotherControlPlane(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		x := newShop(t)
		hub := startServer(t, serverOptions{})
		hub.apply(x.entry(x.v1, x.v2), x.rule(), x.door(), x.routes(100, 0))
		s := startServer(t, serverOptions{args: fedBy(hub, v)})
		s.awaitFed(hub, 4)
		edge, client := s.startPair(v)
		reply := func(version string) {
			t.Helper()
			awaitReply(t, x.atGateway("/"), version)
			awaitReply(t, x.atSidecar("/"), version)
		}
		reply("v1")
		hub.apply(x.routes(0, 100))
		reply("v2")

		name := "xds://" + hub.xds
		if text := s.must("", "get", "serviceentry", "reviews", "-n", "shop", "-o", "yaml"); !strings.Contains(text, "portolan.io/source: "+name) {
			t.Errorf("an object of another control plane does not say so: %s", text)
		}
		if out := s.try("", "delete", "virtualservice", "reviews", "-n", "shop", "--yes"); out.code == 0 || !strings.Contains(out.stderr, "the object comes from the source "+name) {
			t.Errorf("deleting an object of another control plane: exit code %d, %s", out.code, out.stderr)
		}
		if out := hub.must("", "proxy", "status"); !strings.HasPrefix(out, "CONTROL PLANE") {
			t.Errorf("the other control plane shows %s", out)
		}

		hub.kill()
		eventually(t, "the server is ready, and names the other control plane", func() error {
			text, err := s.get("/readyz?verbose", nil)
			if err == nil && !strings.Contains(string(text), "[!] sources: source "+name+": since ") {
				return fmt.Errorf("%s", text)
			}
			return err
		})
		reply("v2")
		hub.start()
		s.awaitFed(hub, 4)
		hub.apply(x.routes(100, 0))
		reply("v1")
		hub.remove(x.rule())
		s.awaitFed(hub, 3)
		s.expectNothingRejected()
		edge.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestTwoMeshesFeedEachOther: an object that is deleted at its origin is gone from both.
func TestTwoMeshesFeedEachOther(t *testing.T) {
	x := newShop(t)
	one := startServer(t, serverOptions{})
	two := startServer(t, serverOptions{args: fedBy(one, protocol.Delta)})
	one.kill()
	one.o.args = fedBy(two, protocol.Delta)
	one.start()
	one.apply(x.entry(x.v1))
	two.apply(x.rule())
	one.awaitFed(two, 1)
	two.awaitFed(one, 1)
	one.remove(x.entry(x.v1))
	two.awaitFed(one, 0)
	two.remove(x.rule())
	one.awaitFed(two, 0)
}

// TestSoakNoDeleteIsLostBetweenControlPlanes kills the server that exports objects and the one
// that imports them, in random order, while objects change. In the end both have the same.
func TestSoakNoDeleteIsLostBetweenControlPlanes(t *testing.T) {
	kills := 4
	if longtest.Soak(t) > 0 {
		kills = 100
	}
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		hub := startServer(t, serverOptions{})
		s := startServer(t, serverOptions{args: fedBy(hub, v)})
		there := map[string]bool{}
		object := func(name string, round int) string {
			return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: %s, namespace: shop, labels: {round: %q}}\n"+
				"spec: {hosts: [%s.shop.test], addresses: [10.9.0.1], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}]}", name, fmt.Sprint(round), name)
		}
		for round := range kills {
			for range 1 + random.IntN(4) {
				name := fmt.Sprint("x", random.IntN(10))
				if there[name] && random.IntN(2) == 0 {
					hub.remove(object(name, round))
					delete(there, name)
				} else {
					hub.apply(object(name, round))
					there[name] = true
				}
			}
			if victim := []*server{hub, s}[random.IntN(2)]; victim == hub {
				hub.kill()
				hub.start()
			} else {
				s.kill()
				if name := slices.Sorted(maps.Keys(there)); len(name) > 0 { // while the other server is down
					hub.remove(object(name[0], round))
					delete(there, name[0])
				}
				s.start()
			}
		}
		s.awaitFed(hub, len(there))
		eventually(t, "both have the same objects", func() error {
			want, err := hub.entryRounds()
			if err != nil {
				return err
			}
			got, err := s.entryRounds()
			if err != nil {
				return err
			}
			if len(want) != len(there) || !maps.Equal(want, got) {
				return fmt.Errorf("the one that gives has %v, the other has %v", want, got)
			}
			return nil
		})
	})
}

// entryRounds returns the label round of all ServiceEntries, by name.
func (s *server) entryRounds() (map[string]string, error) {
	text, err := s.get("/apis/networking.istio.io/v1/serviceentries", nil)
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Name   string            `json:"name"`
				Labels map[string]string `json:"labels"`
			} `json:"metadata"`
		} `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	if list.Items == nil {
		return nil, errors.New("there is no list")
	}
	out := map[string]string{}
	for _, item := range list.Items {
		out[item.Metadata.Name] = item.Metadata.Labels["round"]
	}
	return out, nil
}
