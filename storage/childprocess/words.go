package childprocess

import (
	"bytes"
	"io"
	"sync"
)

// maxWords bounds how much of a line lastWords keeps, and maxTrace how much of the trace
// after a panic. A line longer than maxLine is passed on in parts.
const (
	maxWords = 1024
	maxTrace = 16 << 10
	maxLine  = 64 << 10
)

// lastWords passes on what a process writes to its standard error, in whole lines, since others may
// write to the same place. It keeps the line that best says why the process ended: the first of a
// Go panic, with its trace, or else the last line.
type lastWords struct {
	out io.Writer

	passing sync.Mutex // guards held, and is held while out is written to
	held    []byte     // the line being written, not passed on yet

	mu      sync.Mutex // guards the fields below
	line    []byte     // the line being written
	last    string
	isPanic bool
	trace   []byte
}

// Write implements io.Writer. It never fails: if nobody reads our standard error, the
// child must go on.
func (w *lastWords) Write(b []byte) (int, error) {
	w.passOn(b)
	w.mu.Lock()
	defer w.mu.Unlock()
	for rest := b; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		w.line = append(w.line, line[:min(len(line), maxWords-len(w.line))]...)
		if whole {
			w.endLine()
		}
		rest = after
	}
	return len(b), nil
}

// passOn passes on the lines that are whole, or very long.
func (w *lastWords) passOn(b []byte) {
	w.passing.Lock()
	defer w.passing.Unlock()
	w.held = append(w.held, b...)
	end := bytes.LastIndexByte(w.held, '\n') + 1
	if len(w.held)-end > maxLine {
		end = len(w.held)
	}
	if end > 0 {
		_, _ = w.out.Write(w.held[:end])
		w.held = append(w.held[:0], w.held[end:]...)
	}
}

// flush passes on a line that has no end, unless nobody reads what was passed on before that.
func (w *lastWords) flush() {
	if !w.passing.TryLock() {
		return
	}
	defer w.passing.Unlock()
	if len(w.held) > 0 {
		_, _ = w.out.Write(w.held)
		w.held = nil
	}
}

// endLine is called with mu held.
func (w *lastWords) endLine() {
	line := bytes.TrimSpace(w.line)
	w.line = w.line[:0]
	switch {
	case len(line) == 0:
		return
	case w.isPanic:
		w.trace = append(append(w.trace, line[:min(len(line), maxTrace-len(w.trace))]...), '\n')
		w.trace = w.trace[:min(len(w.trace), maxTrace)]
		return
	}
	w.last = string(line)
	w.isPanic = bytes.HasPrefix(line, []byte("panic: ")) || bytes.HasPrefix(line, []byte("fatal error: "))
}

// String returns the kept line.
func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// panicked returns the trace of the panic that ended the process, if one did.
func (w *lastWords) panicked() (trace string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.trace), w.isPanic
}
