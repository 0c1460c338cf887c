package nameserver_test

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/nameserver"
)

// recorder is a client that asks one question.
type recorder struct {
	dns.ResponseWriter
	remote net.Addr
	got    *dns.Msg
}

func (r *recorder) RemoteAddr() net.Addr { return r.remote }

func (r *recorder) WriteMsg(m *dns.Msg) error {
	r.got = m
	return nil
}

// FuzzQuestion: each question that can be read has one answer, which fits the client and has its id
// and its question.
func FuzzQuestion(f *testing.F) {
	for _, name := range []string{"web.test.", "a.wild.test.", "reviews.corp.example.", "www.example.com.", ".", `a\.b\000.test.`} {
		for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeANY, dns.TypeHTTPS, dns.TypeTXT, dns.TypeAXFR} {
			q := new(dns.Msg).SetQuestion(name, kind)
			plain, _ := q.Pack()
			f.Add(plain, kind%2 == 0)
			q.SetEdns0(600, true)
			with, _ := q.Pack()
			f.Add(with, kind%2 == 0)
		}
	}
	s := nameserver.New(nameserver.Options{Table: &nameserver.Table{Namespace: "shop", Domain: "cluster.local"}, Files: nameserver.Files{ResolvConf: "none", Uplinks: "none"}})
	f.Fuzz(func(t *testing.T, text []byte, tcp bool) {
		q := &dns.Msg{}
		if q.Unpack(text) != nil {
			return
		}
		client := &recorder{remote: &net.UDPAddr{}}
		if tcp {
			client.remote = &net.TCPAddr{}
		}
		asked := q.Copy()
		s.Handler(t.Context()).ServeDNS(client, q)
		if client.got == nil {
			t.Fatal("there is no answer")
		}
		packed, err := client.got.Pack()
		if err != nil {
			t.Fatalf("%v: %v", client.got, err)
		}
		if client.got.Id != asked.Id || !client.got.Response || len(asked.Question) > 0 && (len(client.got.Question) == 0 || client.got.Question[0] != asked.Question[0]) {
			t.Errorf("it is %v for %v", client.got, asked)
		}
		size := dns.MinMsgSize
		if opt := asked.IsEdns0(); opt != nil {
			size = max(size, int(opt.UDPSize()))
		}
		if !tcp && len(packed) > size {
			t.Errorf("it has %d bytes of %d", len(packed), size)
		}
	})
}

// FuzzAnswer: whatever a resolver sends, the client gets an answer to its question.
func FuzzAnswer(f *testing.F) {
	for _, text := range []string{"www.example.com. 100 IN A 192.0.2.1", "www.example.com. 100 IN CNAME www.example.com.", "example.com. 1 IN SOA a. b. 1 2 3 4 5"} {
		m := new(dns.Msg).SetReply(new(dns.Msg).SetQuestion("www.example.com.", dns.TypeA))
		rr, _ := dns.NewRR(text)
		m.Answer, m.Ns = []dns.RR{rr}, []dns.RR{rr}
		packed, _ := m.Pack()
		f.Add(packed)
		f.Add(packed[:len(packed)-2])
	}
	u := startUpstream(f)
	var sent atomic.Pointer[[]byte]
	u.precede(func(q *dns.Msg) [][]byte {
		text := sent.Load()
		if text == nil || len(*text) < 2 || !strings.HasPrefix(q.Question[0].Name, "www.") {
			return nil
		}
		return [][]byte{append([]byte{byte(q.Id >> 8), byte(q.Id)}, (*text)[2:]...)}
	})
	m := startMachine(f, nil, u)
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4000 {
			return
		}
		sent.Store(&text)
		q := new(dns.Msg).SetQuestion("www.example.com.", dns.TypeA)
		answer, _, err := (&dns.Client{Timeout: 5 * time.Second, UDPSize: 4096}).Exchange(q, m.address)
		if err != nil || len(answer.Question) != 1 || answer.Question[0] != q.Question[0] {
			t.Errorf("it is %v, %v", answer, err)
		}
	})
}
