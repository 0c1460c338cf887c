package childprocess

import (
	"slices"
	"strings"
	"testing"
)

// parts keeps what is written, by write.
type parts []string

func (p *parts) Write(b []byte) (int, error) {
	*p = append(*p, string(b))
	return len(b), nil
}

// TestOutputIsWholeLines: in whatever parts a child writes, lines are passed on whole, and the last one
// even without an end. One that is very long comes in parts.
func TestOutputIsWholeLines(t *testing.T) {
	t.Parallel()
	var out parts
	w := &lastWords{out: &out}
	for _, part := range []string{"on", "e\ntw", "o\nthree\nfo", "ur"} {
		if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
			t.Errorf("%q: %d, %v", part, n, err)
		}
	}
	w.flush()
	w.flush()
	if want := (parts{"one\n", "two\nthree\n", "four"}); !slices.Equal(out, want) {
		t.Errorf("it is %q, want %q", out, want)
	}
	out = nil
	for range 3 {
		_, _ = w.Write([]byte(strings.Repeat("x", maxLine)))
	}
	if len(out) == 0 || len(w.held) > maxLine {
		t.Errorf("%d parts, and %d bytes are held", len(out), len(w.held))
	}
	_, _ = w.Write([]byte("\n"))
	if text := strings.Join(out, ""); text != strings.Repeat("x", 3*maxLine)+"\n" {
		t.Errorf("a long line is %d bytes in %d parts", len(text), len(out))
	}
}
