package integration

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// agentOf connects an ADS client in the place of a machine's agent, with a group or without.
func (s *server) agentOf(name, ip, group string) *xdstest.Client {
	return s.agentWith(name, ip, map[string]string{"AUTO_REGISTER_GROUP": group}, nil)
}

// agentWith connects an agent with labels, and with metadata that are not empty.
func (s *server) agentWith(name, ip string, metadata, labels map[string]string) *xdstest.Client {
	node := xdstest.NewNode("sidecar", ip, name, "shop", labels)
	for key, value := range metadata {
		if value != "" {
			node.GetMetadata().GetFields()[key] = structpb.NewStringValue(value)
		}
	}
	c := xdstest.Dial(s.t, s.xds, xdstest.ClientOptions{Node: node, Variant: protocol.Delta, Follow: true})
	c.Subscribe(xdstest.ClusterType)
	c.Subscribe(xdstest.ListenerType)
	return c
}

// TestAMachineReportsItsHealth: a machine of a group with a probe is an endpoint while it reports
// itself healthy, and its entry goes at once when it says that it leaves. The report of a machine
// without a group is of its entry.
func TestAMachineReportsItsHealth(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	m, s := newGroupWeb(t), startServer(t, serverOptions{})
	s.apply(m.group()+"  probe: {tcpSocket: {port: 9080}}\n", m.service())
	s.launchEnvoy(envoyOptions{kind: "sidecar", name: "client", ip: "10.0.0.9", variant: protocol.Delta})
	agent := s.agentOf("vm", "127.0.0.1", "web")
	s.awaitEntry("127.0.0.1", true)
	awaitReply(t, m.request(), "503")
	agent.Report(codes.OK, "")
	awaitReply(t, m.request(), "here")
	agent.Report(codes.Internal, "connection refused")
	awaitReply(t, m.request(), "503")
	s.awaitHealth("web-127.0.0.1", "connection refused")
	agent.Report(codes.OK, "")
	awaitReply(t, m.request(), "here")
	agent.Report(codes.Canceled, "stopping")
	took := s.awaitEntry("127.0.0.1", false)
	t.Logf("gone %v after the machine said that it leaves", took.Round(time.Millisecond))
	if took > storage.DefaultLease/2 {
		t.Errorf("the entry was there for %v", took)
	}
	awaitReply(t, m.request(), "503")

	s.apply(fill(`
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: static, namespace: shop, annotations: {proxy.istio.io/health-checks-enabled: "true"}}
spec: {address: 127.0.0.1, ports: {http: $port}, labels: {app: web}}
`, "$port", m.at.port))
	static := s.agentOf("static", "127.0.0.1", "")
	static.Report(codes.OK, "")
	awaitReply(t, m.request(), "here")
	static.Report(codes.Internal, "no answer")
	awaitReply(t, m.request(), "503")
	s.awaitHealth("static", "no answer")
}

// awaitHealth waits until the status of an entry has a text.
func (s *server) awaitHealth(name, text string) {
	s.t.Helper()
	eventually(s.t, "the status of "+name+": "+text, func() error {
		if out := s.must("", "get", "workloadentry/"+name, "-n", "shop", "-o", "yaml"); !strings.Contains(out, text) {
			return errors.New(out)
		}
		return nil
	})
}
