package rest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/discovery/access/socket"
)

// healthz answers that the process serves.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	writeText(w, http.StatusOK, "ok")
}

// readyz says whether all checks hold, and which do not; with ?verbose it lists them
// all, those that fail first. A server that once had its configuration stays ready when the store fails, since
// old configuration is better than none, and is then degraded.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	var report strings.Builder
	var failing, faulty, rest []string
	for _, check := range s.checks {
		if err := run(check.Ready); err != nil {
			failing = append(failing, fmt.Sprintf("[-] %s: %v\n", check.Name, err))
		} else if err := run(check.Degraded); err != nil {
			faulty = append(faulty, fmt.Sprintf("[!] %s: %v\n", check.Name, err))
		} else if check.Remark != nil && check.Remark() != "" {
			rest = append(rest, fmt.Sprintf("[~] %s: %s\n", check.Name, check.Remark()))
		} else {
			rest = append(rest, fmt.Sprintf("[+] %s ok\n", check.Name))
		}
	}
	failed, degraded := len(failing), len(faulty)
	for _, line := range slices.Concat(failing, faulty, rest) {
		report.WriteString(line)
	}
	if !s.mayKnow(r) {
		report.Reset()
	}
	switch {
	case failed > 0:
		fmt.Fprintf(&report, "not ready: %d of %d checks failed", failed, len(s.checks))
		writeText(w, http.StatusServiceUnavailable, report.String())
	case degraded > 0:
		fmt.Fprintf(&report, "ready, and degraded: %d of %d checks", degraded, len(s.checks))
		writeText(w, http.StatusOK, report.String())
	case r.URL.Query().Has("verbose") && report.Len() > 0:
		report.WriteString("ready")
		writeText(w, http.StatusOK, report.String())
	default:
		writeText(w, http.StatusOK, "ok")
	}
}

// mayKnow says whether a client may see which checks fail, and why: a client on this
// machine, or an authenticated one. For others, such as load balancers, the HTTP status
// is enough.
func (s *Server) mayKnow(r *http.Request) bool {
	if s.authenticator == nil {
		return socket.FromThisMachine(r)
	}
	_, err := s.authenticator.Authenticate(r)
	return err == nil
}

func run(condition func() error) error {
	if condition == nil {
		return nil
	}
	return condition()
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = fmt.Fprintln(w, text) // an error means that the client is gone
}
