package main

import (
	"context"
	"net"
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

// reaching returns the environment with one server to call: of several, the first that accepts
// a connection, else the first of all. Each call looks anew, so a long command survives the loss
// of a server. A call goes to one server: a write is never sent to a second one.
func (e *environment) reaching(ctx context.Context) *environment {
	all := serversOf(e.server)
	if len(all) < 2 {
		return e
	}
	out := *e
	out.server = all[0]
	if i := slices.IndexFunc(all, func(server string) bool { return accepts(ctx, server) }); i >= 0 {
		out.server = all[i]
	}
	return &out
}

// accepts says whether a server accepts connections.
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

// among says whether all of some servers are among others.
func among(some, others string) bool {
	return !slices.ContainsFunc(serversOf(some), func(one string) bool {
		return !slices.ContainsFunc(serversOf(others), func(other string) bool { return sameServer(one, other) })
	}) && some != ""
}
