package health

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/xds/names/probe"
)

// Checker makes the checks of probes on a machine.
type Checker struct {
	// Addresses returns those of the machine, the first of which is probed if the probe names no
	// host. Nil stands for loopback alone.
	Addresses func() []string
	// Exec allows probes that run programs.
	Exec bool
}

// Check makes one check, and returns why the workload is not healthy: what was asked, and what it
// answered.
func (c Checker) Check(ctx context.Context, p *probe.Probe) error {
	within := p.GetTimeout().AsDuration()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var err error
	switch m := p.GetCheck().(type) {
	case *probe.Probe_HttpGet:
		err = c.get(ctx, m.HttpGet)
	case *probe.Probe_TcpSocket:
		err = c.connect(ctx, m.TcpSocket)
	case *probe.Probe_Exec_:
		err = c.exec(ctx, m.Exec)
	case *probe.Probe_Grpc:
		err = c.ask(ctx, m.Grpc)
	default:
		return errors.New("this agent does not know the method of the probe: install a newer one")
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("no answer within %s", within)
	}
	return fmt.Errorf("%s: %w", c.What(p), err)
}

// What says what a probe does.
func (c Checker) What(p *probe.Probe) string {
	switch m := p.GetCheck().(type) {
	case *probe.Probe_HttpGet:
		return "GET " + c.url(m.HttpGet)
	case *probe.Probe_TcpSocket:
		return "tcp " + c.address(m.TcpSocket.GetHost(), m.TcpSocket.GetPort())
	case *probe.Probe_Exec_:
		return "exec " + strings.Join(m.Exec.GetCommand(), " ")
	case *probe.Probe_Grpc:
		return "grpc " + c.address("", m.Grpc.GetPort()) + "/" + m.Grpc.GetService()
	}
	return "unknown"
}

func (c Checker) addresses() []string {
	if c.Addresses == nil {
		return nil
	}
	return c.Addresses()
}

// address returns host:port; an empty host stands for the machine.
func (c Checker) address(host string, port uint32) string {
	if host == "" {
		host = "127.0.0.1"
		if all := c.addresses(); len(all) > 0 {
			host = all[0]
		}
	}
	return net.JoinHostPort(host, strconv.FormatUint(uint64(port), 10))
}

func (c Checker) url(m *probe.Probe_HTTPGet) string {
	scheme := "http"
	if m.GetTls() {
		scheme = "https"
	}
	return scheme + "://" + c.address(m.GetHost(), m.GetPort()) + "/" + strings.TrimPrefix(m.GetPath(), "/")
}

// The bounds of answers that are read.
const maxBody, maxRedirects = 10 << 10, 10

// get succeeds by a status from 200 to 399. It follows redirects to the same host. One to another
// host is success, as the workload itself has answered. Certificates are not verified, since the
// workload's is hardly one for the address of the machine. All of this is as in Kubernetes and
// Istio.
func (c Checker) get(ctx context.Context, m *probe.Probe_HTTPGet) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url(m), nil)
	if err != nil {
		return short(err)
	}
	r.Header.Set("User-Agent", "portolan-agent")
	for _, h := range m.GetHeaders() {
		if strings.EqualFold(h.GetName(), "Host") {
			r.Host = h.GetValue()
			continue
		}
		r.Header.Add(h.GetName(), h.GetValue())
	}
	transport := &http.Transport{
		DisableKeepAlives: true, DialContext: c.dial,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if next.URL.Hostname() != via[0].URL.Hostname() {
			return http.ErrUseLastResponse
		}
		if len(via) >= maxRedirects {
			return fmt.Errorf("more than %d redirects", maxRedirects)
		}
		return nil
	}}
	response, err := client.Do(r)
	if err != nil {
		return short(err)
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.CopyN(io.Discard, response.Body, maxBody)
	if response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusBadRequest {
		return errors.New(response.Status)
	}
	return nil
}

func (c Checker) connect(ctx context.Context, m *probe.Probe_TCPSocket) error {
	conn, err := c.dial(ctx, "tcp", c.address(m.GetHost(), m.GetPort()))
	if err != nil {
		return short(err)
	}
	return conn.Close()
}

// ask asks a server for its health (https://github.com/grpc/grpc/blob/master/doc/health-checking.md),
// in plaintext as Kubernetes does.
func (c Checker) ask(ctx context.Context, m *probe.Probe_GRPC) error {
	conn, err := grpc.NewClient("passthrough:///"+c.address("", m.GetPort()), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return c.dial(ctx, "tcp", address) }),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: m.GetService()})
	switch status.Code(err) {
	case codes.OK:
	case codes.Unimplemented:
		return errors.New("it does not serve grpc.health.v1.Health")
	case codes.NotFound:
		return fmt.Errorf("it does not know the service %q", m.GetService())
	default:
		_, cause, _ := strings.Cut(status.Convert(err).Message(), "Error while dialing: ")
		if cause == "" {
			cause = status.Convert(err).Message()
		}
		return errors.New(strings.Trim(lastPart(cause), `"`))
	}
	if answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		return errors.New(answer.GetStatus().String())
	}
	return nil
}

// The addresses from which a sidecar calls its application. The rules of capture, Istio's and the
// agent's own, let what comes from there pass.
var fromSidecar = map[bool]net.IP{true: net.IPv4(127, 0, 0, 6), false: net.ParseIP("::6")}

// dial connects. It calls the machine itself as the machine's sidecar does: the agent may run as
// the user of the sidecar, whose calls to the machine are captured, and its probe would then meet
// the policies that are for clients.
func (c Checker) dial(ctx context.Context, network, address string) (net.Conn, error) {
	plain := net.Dialer{KeepAlive: -1}
	own, ok := c.own(address)
	if !ok {
		return plain.DialContext(ctx, network, address)
	}
	as := plain
	as.LocalAddr = &net.TCPAddr{IP: fromSidecar[own.Is4()]}
	conn, err := as.DialContext(ctx, network, address)
	if errors.Is(err, syscall.EADDRNOTAVAIL) { // no ::6, so a sidecar could not call the application either
		return plain.DialContext(ctx, network, address)
	}
	return conn, err
}

// own returns the address of the machine, other than loopback, to which a connection goes.
func (c Checker) own(address string) (netip.Addr, bool) {
	to, err := netip.ParseAddrPort(address)
	if err != nil || to.Addr().IsLoopback() {
		return netip.Addr{}, false
	}
	for _, text := range c.addresses() {
		if ip, err := netip.ParseAddr(text); err == nil && ip.Unmap() == to.Addr().Unmap() {
			return ip.Unmap(), true
		}
	}
	return netip.Addr{}, false
}

// short is an error without what the reason has already: who was asked.
func short(err error) error {
	var asked *url.Error
	if errors.As(err, &asked) {
		err = asked.Err
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return errors.New(lastPart(op.Err.Error()))
	}
	return err
}

// lastPart is what stands behind the names of calls: "connect: connection refused".
func lastPart(text string) string {
	if at := strings.LastIndex(text, "connect: "); at >= 0 {
		return text[at+len("connect: "):]
	}
	return text
}

// afterKill bounds the wait for the output of a program that has ended or was killed.
const afterKill = 500 * time.Millisecond
