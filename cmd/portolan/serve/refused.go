package serve

import (
	"net"
	"net/http"
	"strings"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/discovery/identity/issue"
	"github.com/portolan-mesh/portolan/discovery/identity/journal"
	"github.com/portolan-mesh/portolan/xds/admission"
)

// requestRefused records a refused request to the config API.
func (s *server) requestRefused(r rest.Refusal) {
	wanted := r.Access.Verb + " " + r.Access.Path
	if a := r.Access; a.Resource != "" {
		wanted = a.Verb + " " + a.Resource
		if a.Subresource != "" {
			wanted += "/" + a.Subresource
		}
		if a.Name != "" {
			wanted += " " + a.Name
		}
		if a.Namespace != "" {
			wanted += " in " + a.Namespace
		}
	}
	s.refused.Add(journal.Refusal{Port: "config API", User: r.User, Address: r.Address, Tool: r.Tool, Wanted: wanted, Reason: r.Reason})
}

// issuanceRefused records a refused request for a certificate.
func (s *server) issuanceRefused(a issue.Attempt) {
	r := journal.Refusal{Port: "certificates", User: a.Identity.String(), Tool: a.Tool, Reason: a.Reason}
	if a.From.IsValid() {
		r.Address = a.From.String()
	}
	s.refused.Add(r)
}

// joinRefused notes a server that may not join the store.
func (s *server) joinRefused(r *http.Request, reason string) {
	s.refused.Add(journal.Refusal{Port: "store", Address: r.RemoteAddr, Tool: r.UserAgent(), Wanted: "join the store", Reason: reason})
}

// proxyRefused records a client of xDS that was refused.
func (s *server) proxyRefused(r admission.Refusal) {
	wanted := r.Node
	if strings.Contains(r.Reason, wanted) {
		wanted = ""
	}
	s.refused.Add(journal.Refusal{Port: "xDS", User: r.Identity, Address: r.Address, Wanted: wanted, Reason: r.Reason})
}

// clientCertificateRefused returns a function that records clients whose certificate a port
// refuses.
func (s *security) clientCertificateRefused(port string) func(net.Addr, string, error) {
	return func(client net.Addr, holder string, err error) {
		s.refused.Add(journal.Refusal{Port: port, Address: client.String(), Wanted: "connect as " + holder, Reason: err.Error()})
	}
}
