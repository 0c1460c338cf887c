package rest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/discovery/access/socket"
)

// alive are the checks of /livez and /healthz: the process serves.
var alive = []Check{{Name: "ping"}}

// health serves the paths that say how the server is. Each has a path for one check by its
// name, and takes verbose and exclude, as in Kubernetes.
func (s *Server) health() {
	for path, serve := range map[string]http.HandlerFunc{
		"/livez":   func(w http.ResponseWriter, r *http.Request) { s.answerHealth(w, r, alive) },
		"/healthz": func(w http.ResponseWriter, r *http.Request) { s.answerHealth(w, r, alive) },
		"/readyz":  func(w http.ResponseWriter, r *http.Request) { s.answerHealth(w, r, s.checks) },
	} {
		s.mux.HandleFunc(path, serve)
		s.mux.HandleFunc(path+"/{check}", serve)
	}
}

// answerHealth says whether all checks hold, and which do not; with ?verbose it lists them
// all, those that fail first. A server that once had its configuration stays ready when the
// store fails, since old configuration is better than none, and is then degraded.
func (s *Server) answerHealth(w http.ResponseWriter, r *http.Request, checks []Check) {
	var unknown []string
	if name := r.PathValue("check"); name != "" {
		checks = slices.DeleteFunc(slices.Clone(checks), func(c Check) bool { return c.Name != name })
		if len(checks) == 0 {
			writeText(w, http.StatusNotFound, fmt.Sprintf("there is no check %q: %s?verbose lists them", name, strings.TrimSuffix(r.URL.Path, "/"+name)))
			return
		}
	} else {
		checks, unknown = without(checks, r.URL.Query()["exclude"])
	}
	failing, faulty, rest := judge(checks)
	report := strings.Join(slices.Concat(failing, faulty, rest, unknown), "")
	if !s.mayKnow(r) {
		report = ""
	}
	switch {
	case len(failing) > 0:
		writeText(w, http.StatusServiceUnavailable, report+fmt.Sprintf("not ready: %d of %d checks failed", len(failing), len(checks)))
	case len(faulty) > 0:
		writeText(w, http.StatusOK, report+fmt.Sprintf("ready, and degraded: %d of %d checks", len(faulty), len(checks)))
	case r.URL.Query().Has("verbose") && report != "":
		writeText(w, http.StatusOK, report+"ready")
	default:
		writeText(w, http.StatusOK, "ok")
	}
}

// without returns the checks except those named, and a line for each name that no check has.
func without(checks []Check, names []string) (rest []Check, unknown []string) {
	for _, c := range checks {
		if !slices.Contains(names, c.Name) {
			rest = append(rest, c)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(checks, func(c Check) bool { return c.Name == name }) {
			unknown = append(unknown, fmt.Sprintf("warning: there is no check %q to exclude\n", name))
		}
	}
	return rest, unknown
}

// judge returns a line for each check: those that fail, those that are degraded, all others.
func judge(checks []Check) (failing, faulty, rest []string) {
	for _, check := range checks {
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
	return failing, faulty, rest
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
