package nameserver_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/miekg/dns"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/nameserver"
	"github.com/portolan-mesh/portolan/xds/names/nds"
)

// upstream is a resolver of a machine. It denies what it does not have.
type upstream struct {
	address netip.AddrPort

	mu      sync.Mutex
	records map[string][]string // by "name. TYPE", in the form of zone files
	asked   map[string]int      // by "udp name. TYPE", in lower case
	seen    *dns.Msg            // the last question
	ports   map[string]bool     // from which it was asked
	ids     map[uint16]bool
	// behave changes an answer; nil sends none. It is nil for no change.
	behave func(network string, q, answer *dns.Msg) *dns.Msg
	// before is sent before each answer over UDP.
	before func(q *dns.Msg) [][]byte
}

// zone is what upstreams have.
var zone = map[string][]string{
	"www.example.com. A":            {"www.example.com. 100 IN A 192.0.2.1"},
	"www.example.com. AAAA":         {"www.example.com. 100 IN AAAA 2001:db8::1"},
	"alias.example.com. A":          {"alias.example.com. 50 IN CNAME www.example.com.", "www.example.com. 100 IN A 192.0.2.1"},
	"example.com. MX":               {"example.com. 100 IN MX 10 mail.example.com."},
	"example.com. TXT":              {`example.com. 100 IN TXT "v=spf1 -all"`},
	"_sip._tcp.example.com. SRV":    {"_sip._tcp.example.com. 100 IN SRV 1 2 5060 www.example.com."},
	"www.example.com. HTTPS":        {"www.example.com. 100 IN HTTPS 1 . alpn=h2 ipv4hint=192.0.2.1"},
	"1.2.0.192.in-addr.arpa. PTR":   {"1.2.0.192.in-addr.arpa. 100 IN PTR www.example.com."},
	"brief.example.com. A":          {"brief.example.com. 0 IN A 192.0.2.9"},
	"web.test. A":                   {"web.test. 100 IN A 203.0.113.1"},
	"web.test. MX":                  {"web.test. 100 IN MX 10 mail.web.test."},
	"web.test. HTTPS":               {"web.test. 100 IN HTTPS 1 . ipv4hint=203.0.113.1"},
	"wild.test. A":                  {"wild.test. 100 IN A 203.0.113.2"},
	"ftp.corp.example. A":           {"ftp.corp.example. 100 IN A 192.0.2.21"},
	"unknown.example.com. TYPE4711": {`unknown.example.com. 100 IN TYPE4711 \# 3 ABCDEF`},
}

// startUpstream starts a resolver. Its address is free of other tests.
func startUpstream(t testing.TB) *upstream {
	t.Helper()
	u := &upstream{records: zone, asked: map[string]int{}, ports: map[string]bool{}, ids: map[uint16]bool{}}
	packets, stream := sockets(t)
	u.address = netip.MustParseAddrPort(packets.LocalAddr().String())
	serve(t, &dns.Server{PacketConn: packets, Handler: u, UDPSize: 4096})
	serve(t, &dns.Server{Listener: stream, Handler: u})
	return u
}

// sockets opens the sockets of both protocols at one port.
func sockets(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 20 {
		packets, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		stream, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", packets.LocalAddr().String())
		if err == nil {
			return packets, stream
		}
		_ = packets.Close()
	}
	t.Fatal("no port is free in both protocols")
	return nil, nil
}

func serve(t testing.TB, s *dns.Server) {
	started, ended := make(chan struct{}), make(chan struct{})
	s.NotifyStartedFunc = func() { close(started) }
	go func() { defer close(ended); _ = s.ActivateAndServe() }()
	<-started
	t.Cleanup(func() { _ = s.Shutdown(); <-ended })
}

// ServeDNS implements dns.Handler.
func (u *upstream) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	network := w.RemoteAddr().Network()
	u.mu.Lock()
	asked := q.Question[0]
	u.asked[network+" "+strings.ToLower(asked.Name)+" "+dns.Type(asked.Qtype).String()]++
	if asked.Qtype != dns.TypeTXT { // as probes are
		u.seen, u.ports[w.RemoteAddr().String()], u.ids[q.Id] = q, true, true
	}
	behave, before := u.behave, u.before
	answer := u.answer(q)
	u.mu.Unlock()
	if before != nil && network == "udp" {
		for _, text := range before(q) {
			_, _ = w.Write(text)
		}
	}
	if behave != nil {
		answer = behave(network, q, answer)
	}
	if answer != nil {
		_ = w.WriteMsg(answer)
	}
}

func (u *upstream) answer(q *dns.Msg) *dns.Msg {
	m := new(dns.Msg).SetReply(q)
	m.RecursionAvailable = true
	name := strings.ToLower(q.Question[0].Name)
	for _, text := range u.records[name+" "+dns.Type(q.Question[0].Qtype).String()] {
		rr, err := dns.NewRR(text)
		if err != nil {
			panic(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	if len(m.Answer) == 0 {
		m.Rcode = dns.RcodeNameError
		for known := range u.records {
			if strings.HasPrefix(known, name+" ") {
				m.Rcode = dns.RcodeSuccess
			}
		}
		soa, _ := dns.NewRR("example.com. 60 IN SOA ns.example.com. admin.example.com. 1 2 3 4 30")
		m.Ns = []dns.RR{soa}
	}
	if opt := q.IsEdns0(); opt != nil {
		m.SetEdns0(1400, opt.Do())
	}
	return m
}

// set changes how it behaves.
func (u *upstream) set(behave func(network string, q, answer *dns.Msg) *dns.Msg) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.behave = behave
}

// precede sends something before each answer over UDP.
func (u *upstream) precede(before func(q *dns.Msg) [][]byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.before = before
}

// last returns the last question, and from how many ports and with how many ids all have come.
func (u *upstream) last() (q *dns.Msg, ports, ids int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.seen, len(u.ports), len(u.ids)
}

func (u *upstream) count(what string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.asked[what]
}

// hang answers nothing.
func hang(string, *dns.Msg, *dns.Msg) *dns.Msg { return nil }

// hosts are those of the mesh in the tests.
var hosts = map[string][]string{
	"web.test":                       {"10.9.0.1"},
	"both.test":                      {"10.9.0.2", "fd00:9::2"},
	"six.test":                       {"fd00:9::6"},
	"headless.test":                  {"10.0.0.3", "10.0.0.22", "10.0.0.23"},
	"*.wild.test":                    {"10.9.0.3"},
	"*.deep.wild.test":               {"10.9.0.4"},
	"exact.wild.test":                {"10.9.0.5"},
	"Mixed.Test":                     {"10.9.0.7"},
	"reviews.shop.svc.cluster.local": {"10.9.1.1"},
	"ratings.bank.svc.cluster.local": {"10.9.1.2", "fd00:9:1::2"},
	"bare":                           {"10.9.1.3"},
	"*.corp.example":                 {"10.9.1.4"},
}

// resources returns hosts as the servers send them.
func resources(t testing.TB, hosts map[string][]string) (out []*discoveryv3.Resource) {
	t.Helper()
	for name, ips := range hosts {
		body, err := proto.Marshal(&nds.Host{Table: map[string]*nds.NameTable_NameInfo{name: {Ips: ips}}})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, &discoveryv3.Resource{Name: nds.TableName + "/" + name, Version: "1", Resource: &anypb.Any{TypeUrl: nds.HostType, Value: body}})
	}
	return out
}

// machine is a machine with a DNS server.
type machine struct {
	*nameserver.Server
	t       testing.TB
	table   *nameserver.Table
	address string
	files   nameserver.Files
}

// startMachine starts a DNS server that asks these resolvers. Change may change its options.
func startMachine(t testing.TB, change func(*nameserver.Options), resolvers ...*upstream) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{t: t, table: &nameserver.Table{Namespace: "shop", Domain: "cluster.local"}, files: nameserver.Files{ResolvConf: filepath.Join(dir, "resolv.conf"), Uplinks: filepath.Join(dir, "uplinks.conf")}}
	m.write(m.files.ResolvConf, "nameserver 192.0.2.53\nsearch corp.example other.example\noptions timeout:1 attempts:2\n")
	o := nameserver.Options{Table: m.table, Files: m.files, FollowEvery: 20 * time.Millisecond}
	for _, u := range resolvers {
		o.Resolvers = append(o.Resolvers, u.address)
	}
	if change != nil {
		change(&o)
	}
	packets, stream := sockets(t)
	m.address = packets.LocalAddr().String()
	_, _ = packets.Close(), stream.Close()
	o.Addresses = []string{m.address}
	m.Server = nameserver.New(o)
	sockets, err := m.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx, sockets) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server: %v", err)
		}
	})
	return m
}

func (m *machine) write(file, text string) {
	m.t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// ask asks for a name.
func (m *machine) ask(network, name string, kind uint16, change ...func(*dns.Msg)) (*dns.Msg, error) {
	q := new(dns.Msg).SetQuestion(name, kind)
	for _, f := range change {
		f(q)
	}
	client := dns.Client{Net: network, Timeout: 10 * time.Second, UDPSize: 4096}
	answer, _, err := client.Exchange(q, m.address)
	return answer, err
}

// summary returns the code of an answer and the data of its records.
func summary(m *dns.Msg, err error) string {
	if err != nil {
		return err.Error()
	}
	out := dns.RcodeToString[m.Rcode]
	for _, rr := range m.Answer {
		out += " " + strings.TrimPrefix(rr.String(), rr.Header().String())
	}
	return out
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := holds()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(fmt.Errorf("%s: %w", what, err))
		}
	}
}
