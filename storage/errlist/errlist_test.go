package errlist_test

import (
	"errors"
	"testing"

	"github.com/portolan-mesh/portolan/storage/errlist"
)

func TestFormats(t *testing.T) {
	t.Parallel()
	one, two := []error{errors.New("a")}, []error{errors.New("a"), errors.New("b")}
	for got, want := range map[string]string{
		errlist.OneLine(one): "a", errlist.OneLine(two): "a; b", errlist.Lines(one): "a", errlist.Lines(two): "2 faults:\n  a\n  b",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
