package rest

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
)

// guard refuses requests that a web page could make a user's browser send: those for a
// name that was pointed at this address (DNS rebinding), and those of a page of another
// origin. readBody refuses the content types that a form can post.
func (s *Server) guard(r *http.Request) error {
	if !s.knownHost(r.Host) {
		return forbidden(fmt.Sprintf("host %q is not a name of this server: use its address, or add the name to those it is served under", r.Host))
	}
	if err := s.origin.Check(r); err != nil {
		return forbidden(err.Error())
	}
	return nil
}

func (s *Server) knownHost(host string) bool {
	host = hostOnly(host)
	if host == "localhost" || slices.Contains(s.hosts, host) {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// hostOnly is a host name or address without port, brackets and final dot.
func hostOnly(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// overSocket says whether a request came over a unix socket.
func overSocket(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && local.Network() == "unix"
}

// fromThisMachine says whether the peer is on loopback or a unix socket.
func fromThisMachine(r *http.Request) bool {
	if overSocket(r) {
		return true
	}
	ip := net.ParseIP(hostOnly(r.RemoteAddr))
	return ip != nil && ip.IsLoopback()
}
