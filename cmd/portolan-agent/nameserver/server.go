package nameserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"

	"github.com/portolan-mesh/portolan/xds/names/nds"
)

const (
	// TTL is that of the addresses of the mesh in seconds, as in Istio.
	TTL = 30
	// DefaultCache is how many answers of resolvers are kept.
	DefaultCache = 1000
	// readBuffer is how many bytes of questions over UDP may wait to be read.
	readBuffer = 1 << 20
	// mostConnections is how many clients may be connected over TCP at one address.
	mostConnections = 100
	// followEvery is how often the files of the resolvers are read.
	followEvery = 2 * time.Second
)

// DefaultAddresses are where the rules of capture redirect questions to.
var DefaultAddresses = []string{"127.0.0.1:15053", "[::1]:15053"}

// Options configure a Server. Table is required.
type Options struct {
	Table *Table
	// Addresses are host:port each; empty means DefaultAddresses, without that of a family which
	// the machine has not.
	Addresses []string
	// Resolvers are asked in order; empty means those of the machine, which are followed.
	Resolvers []netip.AddrPort
	// Cache is how many answers of resolvers are kept; 0 means DefaultCache, less than 0 none.
	Cache int
	// Files are where the machine says which resolvers it has; zero means SystemFiles. FollowEvery
	// is how often they are read; 0 means 2 s.
	Files       Files
	FollowEvery time.Duration
	// Changed is called, while the server runs, when the machine has other resolvers; nil for nobody.
	Changed func()
	// Logger may be nil; nothing is logged then.
	Logger *slog.Logger
}

// Server answers questions for names.
type Server struct {
	o       Options
	forward *forwarder
	queries atomic.Uint64
	mesh    atomic.Uint64
	has     System                 // as it was read last, by New and then by Run
	problem atomic.Pointer[string] // why the resolvers cannot be read
}

// New returns a server.
func New(o Options) *Server {
	if o.Cache == 0 {
		o.Cache = DefaultCache
	}
	if o.Files == (Files{}) {
		o.Files = SystemFiles
	}
	if o.FollowEvery == 0 {
		o.FollowEvery = followEvery
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{o: o, forward: newForwarder(o.Cache)}
	s.readSystem()
	return s
}

// Listeners are the sockets of a server, of both protocols.
type Listeners struct {
	packets []net.PacketConn
	streams []net.Listener
}

// Listen opens the sockets. The error says which address is taken.
func (s *Server) Listen(ctx context.Context) (*Listeners, error) {
	addresses, all := s.o.Addresses, &Listeners{}
	if len(addresses) == 0 {
		addresses = DefaultAddresses
	}
	for _, address := range addresses {
		err := all.listen(ctx, address)
		if errors.Is(err, syscall.EADDRNOTAVAIL) && len(s.o.Addresses) == 0 {
			continue // the machine has no IPv6
		}
		if err != nil {
			all.Close()
			return nil, fmt.Errorf("dns.addresses: %w: name other addresses, or end what listens there", err)
		}
	}
	return all, nil
}

func (l *Listeners) listen(ctx context.Context, address string) error {
	packets, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", address)
	if err != nil {
		return err
	}
	l.packets = append(l.packets, packets)
	_ = packets.(*net.UDPConn).SetReadBuffer(readBuffer) // as much as the system allows
	stream, err := (&net.ListenConfig{}).Listen(ctx, "tcp", packets.LocalAddr().String())
	if err != nil {
		return err
	}
	l.streams = append(l.streams, stream)
	return nil
}

// Addresses returns where the sockets are.
func (l *Listeners) Addresses() []string {
	var out []string
	for _, p := range l.packets {
		out = append(out, p.LocalAddr().String())
	}
	return out
}

// Close closes the sockets.
func (l *Listeners) Close() {
	for _, p := range l.packets {
		_ = p.Close()
	}
	for _, s := range l.streams {
		_ = s.Close()
	}
}

// Run answers questions until ctx ends, and follows the resolvers of the machine.
func (s *Server) Run(ctx context.Context, l *Listeners) error {
	group, ctx := errgroup.WithContext(ctx)
	handler := s.Handler(ctx)
	var servers []*dns.Server
	for _, p := range l.packets {
		servers = append(servers, &dns.Server{PacketConn: p, Handler: handler, UDPSize: leastBuffer})
	}
	for _, stream := range l.streams {
		servers = append(servers, &dns.Server{Listener: netutil.LimitListener(stream, mostConnections), Handler: handler})
	}
	for _, one := range servers {
		started := make(chan struct{})
		one.NotifyStartedFunc = func() { close(started) }
		group.Go(func() error {
			ended := make(chan error, 1)
			go func() { ended <- one.ActivateAndServe() }()
			select {
			case <-started:
			case err := <-ended:
				return err
			}
			select {
			case <-ctx.Done():
				_ = one.Shutdown() // and wait for those that are answered
				return <-ended
			case err := <-ended:
				return err
			}
		})
	}
	group.Go(func() error { s.every(ctx, s.follow); return nil })
	group.Go(func() error { s.every(ctx, func() { s.forward.probe(ctx) }); return nil })
	err := group.Wait()
	l.Close()
	return err
}

// every does something at once and then again and again until ctx ends.
func (s *Server) every(ctx context.Context, do func()) {
	tick := time.NewTicker(s.o.FollowEvery)
	defer tick.Stop()
	for {
		do()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// follow takes the resolvers of the machine, and tells of others.
func (s *Server) follow() {
	if s.readSystem() && s.o.Changed != nil {
		s.o.Changed()
	}
}

// readSystem has the forwarder ask the resolvers that the machine has, and says whether these are
// others.
func (s *Server) readSystem() bool {
	now, err := s.o.Files.Read()
	if err != nil {
		text := err.Error()
		if was := s.problem.Swap(&text); was == nil {
			s.o.Logger.Error("the resolvers of the machine cannot be read: the last ones are asked", "err", err)
		}
		return false
	}
	s.problem.Store(nil)
	if reflect.DeepEqual(s.has, now) {
		return false
	}
	s.has = now
	resolvers := s.o.Resolvers
	if len(resolvers) == 0 {
		resolvers = slices.DeleteFunc(slices.Clone(now.Resolvers), func(r netip.AddrPort) bool { return slices.Contains(s.o.Addresses, r.String()) })
	}
	s.forward.use(resolvers, now.Search, now.Timeout, now.Attempts)
	s.o.Logger.Info("names that are not of the mesh are asked for at", "resolvers", resolvers, "search", now.Search)
	return true
}

// Handler returns what answers one question. It gives up on resolvers when ctx ends.
func (s *Server) Handler(ctx context.Context) dns.Handler {
	return dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		s.queries.Add(1)
		_, tcp := w.RemoteAddr().(*net.TCPAddr)
		m := s.answer(ctx, q, tcp)
		m.Compress = true
		if tcp {
			m.Truncate(dns.MaxMsgSize)
		} else {
			m.Truncate(sizeOf(q))
		}
		_ = w.WriteMsg(m) // who asked may be gone
	})
}

func (s *Server) answer(ctx context.Context, q *dns.Msg, tcp bool) *dns.Msg {
	switch {
	case q.Opcode != dns.OpcodeQuery:
		return failure(q, dns.RcodeNotImplemented)
	case len(q.Question) != 1:
		return failure(q, dns.RcodeFormatError)
	}
	asked := q.Question[0]
	switch {
	case s.forward.caught(asked.Name), asked.Qtype == dns.TypeAXFR, asked.Qtype == dns.TypeIXFR:
		return failure(q, dns.RcodeRefused)
	case asked.Qclass != dns.ClassINET:
		return s.forward.ask(ctx, q, tcp)
	}
	of := s.o.Table.find(nds.KeyOf(asked.Name), s.forward.settings.Load().search)
	if of == nil {
		return s.forward.ask(ctx, q, tcp)
	}
	if opt := q.IsEdns0(); opt != nil && opt.Version() != 0 {
		return failure(q, dns.RcodeBadVers)
	}
	switch asked.Qtype {
	case dns.TypeA, dns.TypeAAAA, dns.TypeANY, dns.TypeHTTPS, dns.TypeSVCB:
		s.mesh.Add(1)
		return ofMesh(q, of)
	}
	m := s.forward.ask(ctx, q, tcp)
	if m.Rcode == dns.RcodeNameError {
		m.Rcode = dns.RcodeSuccess // the name exists: caches would deny its addresses
	}
	return m
}

// ofMesh answers with the addresses of a host in a random order. There is no other record: those
// of HTTPS and SVCB have addresses of their own, which would lead around the mesh.
func ofMesh(q *dns.Msg, of *match) *dns.Msg {
	asked := q.Question[0]
	m := new(dns.Msg).SetReply(q)
	m.Authoritative, m.RecursionAvailable = true, true
	owner := asked.Name
	if of.searched {
		owner = of.name + "."
	}
	head := func(owner string, kind uint16) dns.RR_Header {
		return dns.RR_Header{Name: owner, Rrtype: kind, Class: dns.ClassINET, Ttl: TTL}
	}
	if asked.Qtype == dns.TypeA || asked.Qtype == dns.TypeANY {
		for _, ip := range rotated(of.host.v4) {
			m.Answer = append(m.Answer, &dns.A{Hdr: head(owner, dns.TypeA), A: ip.AsSlice()})
		}
	}
	if asked.Qtype == dns.TypeAAAA || asked.Qtype == dns.TypeANY {
		for _, ip := range rotated(of.host.v6) {
			m.Answer = append(m.Answer, &dns.AAAA{Hdr: head(owner, dns.TypeAAAA), AAAA: ip.AsSlice()})
		}
	}
	if of.searched && len(m.Answer) > 0 {
		m.Answer = append([]dns.RR{&dns.CNAME{Hdr: head(asked.Name, dns.TypeCNAME), Target: owner}}, m.Answer...)
	}
	return addEDNS(m, q)
}

// rotated returns addresses from a random one on, so that clients spread over them.
func rotated(ips []netip.Addr) []netip.Addr {
	if len(ips) < 2 {
		return ips
	}
	from := rand.IntN(len(ips))
	return append(slices.Clone(ips[from:]), ips[:from]...)
}

// Status is what a server knows and did.
type Status struct {
	// Hosts is how many hosts of the mesh it knows, Since when it first knew any, and Changed when
	// they last changed. Both are zero while it was told nothing, and forwards all.
	Hosts   int       `json:"hosts"`
	Since   time.Time `json:"since,omitzero"`
	Changed time.Time `json:"changed,omitzero"`
	// Queries are those that came; Mesh those that were answered with hosts of the mesh, Cached
	// those that were answered with what a resolver had said before, and Forwarded those that went
	// to resolvers. Failed are those that no resolver answered, and Refused those that came while
	// too many waited.
	Queries   uint64     `json:"queries"`
	Mesh      uint64     `json:"mesh"`
	Cached    uint64     `json:"cached"`
	Forwarded uint64     `json:"forwarded"`
	Failed    uint64     `json:"failed"`
	Refused   uint64     `json:"refused"`
	Resolvers []Resolver `json:"resolvers"`
	// Problem is why there are no resolvers, or not those that the machine has; empty for nothing.
	Problem string `json:"problem,omitempty"`
}

// Resolver is one resolver, with what is wrong with it, empty for nothing. Nothing is known of one
// that was not Asked yet.
type Resolver struct {
	Address string `json:"address"`
	Asked   bool   `json:"asked"`
	Problem string `json:"problem,omitempty"`
}

// Status returns what is known now.
func (s *Server) Status() Status {
	f := s.forward
	out := Status{Queries: s.queries.Load(), Mesh: s.mesh.Load(), Cached: f.cached.Load(), Forwarded: f.forwarded.Load(), Failed: f.failed.Load(), Refused: f.refused.Load()}
	if now := s.o.Table.now.Load(); now != nil {
		out.Hosts, out.Since, out.Changed = now.byName.Len(), now.since, now.changed
	}
	for _, r := range f.settings.Load().resolvers {
		one := Resolver{Address: r.address.String(), Asked: r.asked.Load()}
		switch {
		case r.loops.Load():
			one.Problem = "questions to it come back, so it is not asked: run the agent as capture.proxyUser, and name other resolvers as dns.resolvers"
		case time.Now().UnixNano() < r.slowUntil.Load():
			one.Problem = "it did not answer, so it is asked after the others"
		case r.silent.Load():
			one.Problem = "it did not answer when it was last asked"
		}
		out.Resolvers = append(out.Resolvers, one)
	}
	if problem := s.problem.Load(); problem != nil {
		out.Problem = *problem
	} else if len(out.Resolvers) == 0 {
		out.Problem = errNoResolver.Error()
	}
	return out
}

// Origin is where the answer for a name comes from.
type Origin struct {
	// Host is the host of the mesh that the name stands for, empty for none: then resolvers are
	// asked.
	Host      string       `json:"host,omitempty"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
}

// Origin says where the answer for a name comes from.
func (s *Server) Origin(name string) Origin {
	m := s.o.Table.find(nds.KeyOf(name), s.forward.settings.Load().search)
	if m == nil {
		return Origin{}
	}
	return Origin{Host: m.host.name, Addresses: slices.Concat(m.host.v4, m.host.v6)}
}
