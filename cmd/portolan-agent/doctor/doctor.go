// Package doctor looks at what an agent depends on: the clock, names, servers, the certificate, the
// Envoy, ports, the disk and the packet filter. Each finding says what to do.
package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/capture"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/config"
	"github.com/portolan-mesh/portolan/cmd/portolan/enroll"
	"github.com/portolan-mesh/portolan/discovery/node"
)

// Level says how bad a finding is.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Warn Level = "warning"
	Fail Level = "fault"
)

// Finding is what one look has found. Do says what to do about it, empty if it is well.
type Finding struct {
	Level Level  `json:"level"`
	What  string `json:"what"`
	Text  string `json:"text"`
	Do    string `json:"do,omitempty"`
}

// Options say what to look at.
type Options struct {
	Config config.Config
	// Running says whether an agent runs by this configuration, and so has the ports.
	Running bool
	// Registration is what the servers say of it to the agent that runs; nil for nothing.
	Registration *node.Standing
	// Faults are why the agent that runs is not ready for traffic, though nobody has drained it.
	Faults []string
	// Firewall is that of the machine.
	Firewall capture.Firewall
}

// patience bounds each look at something that is far.
const patience = 5 * time.Second

// Look returns all findings, in a fixed order. It changes nothing.
func Look(ctx context.Context, o Options) []Finding {
	looks := []func(context.Context, Options) []Finding{certificate, names, apis, streams, registered, envoyBinary, envoyLives, traffic, ports, disk, captured}
	found := make([][]Finding, len(looks))
	var group sync.WaitGroup
	for i, look := range looks {
		group.Go(func() { found[i] = look(ctx, o) })
	}
	group.Wait()
	var out []Finding
	for _, f := range found {
		out = append(out, f...)
	}
	return out
}

// reach returns what to do about a server that is not reached.
func (o Options) reach(ctx context.Context, otherwise string) string {
	if o.Config.Capture != nil && !o.Running && o.Firewall.Refuses(ctx, o.Config.Rules()) {
		return "start the agent: the rules of capture refuse connections while it does not run. Or let them pass: portolan-agent capture remove"
	}
	return otherwise
}

func one(level Level, what, do, format string, args ...any) []Finding {
	return []Finding{{Level: level, What: what, Text: fmt.Sprintf(format, args...), Do: do}}
}

func certificate(_ context.Context, o Options) []Finding {
	const what = "certificate"
	held, err := enroll.Read(o.Config.Certificate())
	if err != nil {
		return one(Fail, what, "join the machine (portolan-agent join), and run this as root or as the user of the agent", "%v", err)
	}
	leaf, identity := held.Pair.Leaf, "no identity"
	if len(leaf.URIs) > 0 {
		identity = leaf.URIs[0].String()
	}
	left, life := time.Until(leaf.NotAfter).Round(time.Second), leaf.NotAfter.Sub(leaf.NotBefore)
	switch {
	case left <= 0:
		return one(Fail, what, "start the agent: servers renew an expired certificate for seven days (serve --renew-expired). After that, join the machine again", "%s has expired %s ago", identity, -left)
	case left < life/4:
		return one(Warn, what, "it should have been renewed at two thirds of its life: look into the agent's log, and at the servers below", "%s ends in %s", identity, left)
	}
	return one(OK, what, "", "%s, for %s more", identity, left)
}

// registered looks at what the servers say of the machine's registration.
func registered(_ context.Context, o Options) []Finding {
	const what = "registration"
	group := "the WorkloadGroup " + o.Config.Proxy.Namespace + "/" + o.Config.Proxy.Group
	if o.Config.Proxy.Group == "" {
		group = "the entry"
	}
	switch r := o.Registration; {
	case o.Config.Proxy.Group == "" && r == nil || !o.Running:
		return nil
	case r == nil:
		return one(Warn, what, "look at the servers above", "no server has said what has become of it")
	case r.State == node.Refused:
		return one(Fail, what, "look at "+group+" (portolan machine list), with those who operate the mesh", "%s is refused: %s", r.Entry, r.Reason)
	case r.State == node.Waiting:
		return one(Warn, what, "it goes on by itself; look at "+group+" if it does not", "%s waits for %s", r.Entry, r.Reason)
	case r.Drained != "":
		return one(Warn, what, r.EndDrain()+" takes it back, on the side of those who operate the mesh", "%s is drained: %s", r.Entry, r.Drained)
	case r.State == node.Written:
		return one(OK, what, "", "somebody has written %s for the machine", r.Entry)
	case r.Reason != "":
		return one(Warn, what, "look at "+group+" (portolan machine list), with those who operate the mesh", "%s is registered, %s", r.Entry, r.Reason)
	}
	return one(OK, what, "", "%s is %s", o.Registration.Entry, o.Registration.State)
}

// hosts are the names of the servers, each once.
func hosts(c config.Config) []string {
	var out []string
	seen := map[string]bool{}
	add := func(host string) {
		if !seen[host] && host != "" {
			seen[host] = true
			out = append(out, host)
		}
	}
	for _, server := range c.API {
		if u, err := url.Parse(server); err == nil {
			add(u.Hostname())
		}
	}
	for _, address := range c.XDS {
		if host, _, err := net.SplitHostPort(address); err == nil {
			add(host)
		}
	}
	return out
}

func names(ctx context.Context, o Options) (out []Finding) {
	for _, host := range hosts(o.Config) {
		if net.ParseIP(host) != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, patience)
		addresses, err := net.DefaultResolver.LookupHost(ctx, host)
		cancel()
		if err != nil {
			out = append(out, one(Fail, "name", "mend /etc/resolv.conf or the name, or give addresses in api and xds", "%s: %v", host, err)...)
			continue
		}
		out = append(out, one(OK, "name", "", "%s is %s", host, strings.Join(addresses, ", "))...)
	}
	return out
}

// The clocks of a machine and a server may differ by so much: certificates are dated back by two
// minutes.
const skewNoticed, skewHarmful = 30 * time.Second, 2 * time.Minute

// apis looks at the config API of each server, and at its clock.
func apis(ctx context.Context, o Options) (out []Finding) {
	const what = "config API"
	for _, server := range o.Config.API {
		now, err := dateOf(ctx, server, o.Config.Certificate())
		if err != nil {
			out = append(out, one(Fail, what, o.reach(ctx, "let the machine reach it, or change api in the file; renewals need one server"), "%s: %v", server, enroll.ExplainUntrusted(o.Config.Certificate(), err))...)
			continue
		}
		out = append(out, one(OK, what, "", "%s answers", server)...)
		out = append(out, clock(server, time.Since(now)))
	}
	return out
}

// clock judges by how much this machine is ahead of a server.
func clock(server string, ahead time.Duration) Finding {
	ahead = ahead.Round(time.Second)
	out := Finding{Level: OK, What: "clock", Text: "as that of " + server}
	if ahead.Abs() <= skewNoticed {
		return out
	}
	side := "ahead of"
	if ahead < 0 {
		side = "behind"
	}
	out.Do, out.Text = "set the clock that is wrong, best by NTP", fmt.Sprintf("this machine is %s %s %s", ahead.Abs(), side, server)
	if out.Level = Warn; ahead.Abs() > skewHarmful {
		out.Level = Fail
	}
	return out
}

// dateOf returns the time of a server. A wrong clock must not keep it from being found, so the
// server's certificate is verified by the server's own clock.
func dateOf(ctx context.Context, server, dir string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	own, err := enroll.Client(dir)
	if err != nil {
		return time.Time{}, err
	}
	transport := &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, VerifyConnection: func(state tls.ConnectionState) error {
		options := x509.VerifyOptions{Roots: own.RootCAs, DNSName: state.ServerName, Intermediates: x509.NewCertPool(), CurrentTime: state.PeerCertificates[0].NotBefore.Add(time.Second)}
		for _, c := range state.PeerCertificates[1:] {
			options.Intermediates.AddCert(c)
		}
		_, err := state.PeerCertificates[0].Verify(options)
		return err
	}}}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/readyz", nil)
	if err != nil {
		return time.Time{}, err
	}
	response, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return time.Time{}, err
	}
	_ = response.Body.Close()
	return http.ParseTime(response.Header.Get("Date"))
}

// streams looks whether each server takes the machine's proxies.
func streams(ctx context.Context, o Options) (out []Finding) {
	const what = "xDS"
	for _, address := range o.Config.XDS {
		if err := greet(ctx, o.Config, address); err != nil {
			out = append(out, one(Fail, what, o.reach(ctx, "let the machine reach it, or change xds in the file; if it is the certificate, see above"), "%s: %v", address, enroll.ExplainUntrusted(o.Config.Certificate(), err))...)
			continue
		}
		out = append(out, one(OK, what, "", "%s takes the machine's certificate", address)...)
	}
	return out
}

// greet connects to a server as the relay does. A server that refuses the certificate says so
// after the handshake, in the place of its first bytes.
func greet(ctx context.Context, c config.Config, address string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	own, err := enroll.Client(c.Certificate())
	if err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	own.ServerName, own.NextProtos = cmp.Or(c.XDSName, host), []string{"h2"}
	conn, err := (&tls.Dialer{Config: own}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	_, err = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00") // HTTP/2's preface, and no settings
	if err == nil {
		err = conn.SetReadDeadline(deadline)
	}
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	return err
}
