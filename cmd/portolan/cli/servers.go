package cli

import (
	"context"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
)

// connectPatience is how long one of several servers may take to accept a connection.
const connectPatience = 2 * time.Second

// serversOf divides the value of --server, which may name several servers of one store.
func serversOf(text string) []string {
	var out []string
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one != "" {
			out = append(out, one)
		}
	}
	return out
}

// Reaching returns the environment with one server to call: of several, the first that accepts
// a connection, else the first of all. Each call looks anew, so a long command survives the loss
// of a server. A call goes to one server: a write is never sent to a second one.
func (e *Environment) Reaching(ctx context.Context) *Environment {
	all := serversOf(e.Server)
	if len(all) < 2 {
		return e
	}
	first := max(0, slices.IndexFunc(all, func(server string) bool { return accepts(ctx, server) }))
	return e.With(func(e *Environment) { e.Server = all[first] })
}

func accepts(ctx context.Context, server string) bool {
	at, ok := endpointOf(server)
	if !ok {
		return false
	}
	network, address := "tcp", at
	if path, isSocket := strings.CutPrefix(at, "unix:"); isSocket {
		network, address = "unix", path
	} else {
		_, address, _ = strings.Cut(at, "://")
	}
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// Among says whether all of some servers are among others.
func Among(some, others string) bool {
	return !slices.ContainsFunc(serversOf(some), func(one string) bool {
		return !slices.ContainsFunc(serversOf(others), func(other string) bool { return SameServer(one, other) })
	}) && some != ""
}

// SameServer says whether two addresses mean the same server: the same socket, or the same
// scheme, host and port.
func SameServer(a, b string) bool {
	at, ok := endpointOf(a)
	other, ok2 := endpointOf(b)
	return ok && ok2 && at == other
}

// endpointOf returns the canonical form of a server's address, or false if it is no address.
func endpointOf(server string) (string, bool) {
	if path, ok := strings.CutPrefix(server, "unix:"); ok {
		return "unix:" + strings.TrimPrefix(path, "//"), true
	}
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	u, err := url.Parse(server)
	if err != nil || u.Hostname() == "" {
		return "", false
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port), true
}
