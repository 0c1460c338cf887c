package rest

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/storage/refusal"
)

// guard refuses requests that a web page could make a user's browser send: requests for a
// host name that points at this address (DNS rebinding), and requests from a page of
// another origin. readBody refuses the content types that a form can post.
// https://www.sjoerdlangkemper.nl/2017/09/13/attacks-on-host-header/
func (s *Server) guard(c *call) error {
	r := c.r
	if !s.knownHost(r) {
		return c.noteRefused(refusal.Forbidden(fmt.Sprintf("host %q is not a name of this server: use its address, a name in its certificate, or one of serve --api-name", r.Host)))
	}
	if err := s.origin.Check(r); err != nil {
		return c.noteRefused(refusal.Forbidden(err.Error()))
	}
	return nil
}

// knownHost says whether a request is for a name of this server. Over TLS these include
// the names in its certificate: a browser accepts no others. An address is known if the
// connection came to it: DNS rebinding needs a name.
func (s *Server) knownHost(r *http.Request) bool {
	host := hostOnly(r.Host)
	if host == "localhost" || slices.Contains(s.hosts, host) || r.TLS != nil && s.certifies(host) {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && (ip.IsLoopback() || ip.Equal(localIP(r)))
}

// localIP returns the address to which the connection of a request came, nil if it is
// not over IP.
func localIP(r *http.Request) net.IP {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok {
		return nil
	}
	return local.IP
}

// hostOnly returns a host name or address without port, brackets and final dot.
func hostOnly(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
