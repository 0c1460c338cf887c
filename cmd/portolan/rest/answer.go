package rest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
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
	writeBody(w, code, runtime.ContentTypeJSON, body.Bytes())
}

// writeBody answers with a body of some media type. A client that does not read it in time
// loses the connection.
func writeBody(w http.ResponseWriter, code int, media string, body []byte) {
	setHeader(w, media)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_ = bounded(w, func() error { // an error means that the client is gone
		w.WriteHeader(code)
		_, err := w.Write(body)
		return err
	})
}

const (
	// listTimeout is how long a client may take to read a list. answerPiece is how much
	// of a list is encoded at a time: the next piece follows when the client has read the
	// last.
	listTimeout = 5 * time.Minute
	answerPiece = 64 << 10
)

// answer sends a long text while it is made. A text that fits into one piece is sent like
// any other answer.
type answer struct {
	w     http.ResponseWriter
	form  form
	until time.Time
	out   bytes.Buffer
	begun bool // the header is written
}

func newAnswer(c *call) *answer {
	return &answer{w: c.w, form: c.form, until: time.Now().Add(listTimeout)}
}

// whole says that the text can only be converted, and sent, at its end.
func (a *answer) whole() bool { return a.form.media == runtime.ContentTypeProtobuf }

func (a *answer) add(texts ...[]byte) {
	for _, text := range texts {
		if len(text) >= answerPiece && !a.whole() { // sent as it is, without a copy
			a.send(a.out.Bytes(), text)
			a.out.Reset()
			continue
		}
		if a.out.Write(text); a.out.Len() >= answerPiece && !a.whole() {
			a.send(a.out.Bytes())
			a.out.Reset()
		}
	}
}

// If the client does not read the texts in time, the handler ends and closes the
// connection: otherwise the cut would look like the end of the answer.
func (a *answer) send(texts ...[]byte) {
	if !a.begun {
		a.begun = true
		setHeader(a.w, a.form.media)
		a.w.WriteHeader(http.StatusOK)
	}
	err := bounded(a.w, func() error {
		for _, text := range texts {
			if _, err := a.w.Write(text); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || time.Now().After(a.until) {
		panic(http.ErrAbortHandler)
	}
}

// end sends the rest.
func (a *answer) end() error {
	if a.begun {
		a.send(a.out.Bytes())
		return nil
	}
	body := a.out.Bytes()
	if a.whole() {
		var err error
		if body, err = a.form.body(body); err != nil {
			return err
		}
	}
	writeBody(a.w, http.StatusOK, a.form.media, body)
	return nil
}

// fail answers with an error, if nothing was sent yet.
func (a *answer) fail(err error) error {
	if a.begun {
		panic(http.ErrAbortHandler)
	}
	return err
}

// setHeader sets the header that all answers share.
func setHeader(w http.ResponseWriter, media string) {
	w.Header().Set("Content-Type", media)
	w.Header().Set("Cache-Control", "no-cache, private")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}

// bounded limits how long the client may take to read what write writes. It then removes
// the deadline, since the connection may be used again. Connections that do not support
// deadlines get none.
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

// document returns an object as clients see it, in JSON.
func document(object *config.Config, version string) ([]byte, error) {
	return config.ToJSON(config.Shown(object), version)
}

// writeObject answers with an object as served, in the API version of the path and the form
// that the client accepts.
func (s *Server) writeObject(c *call, code int, object *config.Config) error {
	text, err := c.form.single(s.withOrigin(object), c.version)
	if err != nil {
		return err
	}
	body, err := c.form.body(text)
	if err != nil {
		return err
	}
	writeBody(c.w, code, c.form.media, body)
	return nil
}

// maxWarnings bounds the bytes of warnings in the header of an answer. Clients bound
// them too.
const maxWarnings = 4096

// Warn puts warnings into the header of the answer, before it is written.
func Warn(w http.ResponseWriter, warnings ...string) { warn(w, warnings) }

// warn puts warnings into the header of the answer.
func warn(w http.ResponseWriter, warnings []string) {
	size := 0
	for _, text := range warnings {
		header, err := utilnet.NewWarningHeader(299, "-", text)
		if err != nil { // a header cannot hold the text
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

// Unwrap gives http.ResponseController access to the wrapped writer.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
