package rest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/portolan-mesh/portolan/storage/config"
)

// writeJSON answers with a value of a type that always encodes.
func writeJSON(w http.ResponseWriter, code int, value any) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false) // people read it
	if err := encoder.Encode(value); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeBody(w, code, body.Bytes())
}

// writeBody answers with JSON text. A client that does not take it in time
// loses the connection.
func writeBody(w http.ResponseWriter, code int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Header().Set("Cache-Control", "no-cache, private")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = bounded(w, func() error { // an error means that the client is gone
		w.WriteHeader(code)
		_, err := w.Write(body)
		return err
	})
}

// bounded gives the client a while to take all that write writes. The
// connection is left without a deadline, as others who answer on it expect. A
// connection that knows no deadlines has none.
func bounded(w http.ResponseWriter, write func() error) error {
	controller := http.NewResponseController(w)
	_ = controller.SetWriteDeadline(time.Now().Add(writeTimeout))
	err := write()
	if err == nil {
		err = controller.Flush()
	}
	_ = controller.SetWriteDeadline(time.Time{})
	return err
}

// writeObject answers with an object as served, in the API version of the path.
func (s *Server) writeObject(c *call, code int, object *config.Config) error {
	body, err := config.ToJSON(object, c.version)
	if err != nil {
		return err
	}
	writeBody(c.w, code, append(body, '\n'))
	return nil
}

// maxWarnings bounds the bytes of warnings in the header of an answer, which
// clients bound too.
const maxWarnings = 4096

// warn puts warnings into the header of the answer.
func warn(w http.ResponseWriter, warnings []string) {
	size := 0
	for _, text := range warnings {
		header, err := utilnet.NewWarningHeader(299, "-", text)
		if err != nil { // text that a header cannot hold
			header, _ = utilnet.NewWarningHeader(299, "-", strconv.QuoteToASCII(text))
		}
		if size += len(header); size > maxWarnings {
			return
		}
		w.Header().Add("Warning", header)
	}
}

// recorder remembers the status of an answer.
type recorder struct {
	http.ResponseWriter
	code int
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(code int) {
	if r.code == 0 {
		r.code = code
	}
	r.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(p []byte) (int, error) {
	if r.code == 0 {
		r.code = http.StatusOK
	}
	return r.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController through.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
