package seal_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/storage/seal"
)

var value, context = []byte("a private key"), []byte("secret/shop/door")

func TestSealAndOpen(t *testing.T) {
	t.Parallel()
	ring, id := seal.Ring{}.WithNew()
	box, err := ring.Seal(id, value, context)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ring.Open(box, context); err != nil || !bytes.Equal(got, value) {
		t.Errorf("opened %q, %v", got, err)
	}
	if bytes.Contains(box.Value, value) {
		t.Error("the value is in the clear")
	}
	again, err := ring.Seal(id, value, context)
	if err != nil || bytes.Equal(again.Value, box.Value) || bytes.Equal(again.DataKey, box.DataKey) {
		t.Errorf("sealed alike twice: %v", err)
	}
}

func TestNothingElseOpens(t *testing.T) {
	t.Parallel()
	ring, id := seal.Ring{}.WithNew()
	other, otherID := seal.Ring{}.WithNew()
	box, err := ring.Seal(id, value, context)
	if err != nil {
		t.Fatal(err)
	}
	flipped := func(b []byte) []byte {
		out := bytes.Clone(b)
		out[len(out)-1] ^= 1
		return out
	}
	for name, c := range map[string]struct {
		ring    seal.Ring
		box     seal.Box
		context string
	}{
		"another object":   {ring, box, "secret/shop/window"},
		"a changed value":  {ring, seal.Box{Key: id, DataKey: box.DataKey, Value: flipped(box.Value)}, string(context)},
		"a changed key":    {ring, seal.Box{Key: id, DataKey: flipped(box.DataKey), Value: box.Value}, string(context)},
		"no value":         {ring, seal.Box{Key: id, DataKey: box.DataKey}, string(context)},
		"the key as value": {ring, seal.Box{Key: id, DataKey: box.DataKey, Value: box.DataKey}, string(context)},
		"another key's id": {ring.With(other), seal.Box{Key: otherID, DataKey: box.DataKey, Value: box.Value}, string(context)},
		"nothing of a box": {ring, seal.Box{Key: id}, string(context)},
	} {
		if got, err := c.ring.Open(c.box, []byte(c.context)); !errors.Is(err, seal.ErrDamaged) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	var unknown *seal.UnknownKeyError
	if _, err := other.Open(box, context); !errors.As(err, &unknown) || unknown.ID != id {
		t.Errorf("without the key: %v", err)
	}
	if _, err := ring.Seal(otherID, value, context); !errors.As(err, &unknown) || unknown.ID != otherID {
		t.Errorf("seal without the key: %v", err)
	}
}

func TestResealing(t *testing.T) {
	t.Parallel()
	old, oldID := seal.Ring{}.WithNew()
	both, newID := old.WithNew()
	box, err := old.Seal(oldID, value, context)
	if err != nil {
		t.Fatal(err)
	}
	moved, err := both.Reseal(box, newID, context)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Open(moved, context); err == nil {
		t.Error("the old key still opens it")
	}
	if got, err := both.Open(moved, context); err != nil || !bytes.Equal(got, value) {
		t.Errorf("opened %q, %v", got, err)
	}
	if _, err := both.Reseal(box, newID, []byte("another")); !errors.Is(err, seal.ErrDamaged) {
		t.Errorf("resealed for another object: %v", err)
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "sealing.key")
	if _, err := seal.Read(file); !seal.IsMissing(err) {
		t.Errorf("no file: %v", err)
	}
	ring, first := seal.Ring{}.WithNew()
	ring, second := ring.WithNew()
	if err := ring.Write(file); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	got, err := seal.Read(file)
	if err != nil || !cmp.Equal(got.IDs(), []string{first, second}) {
		t.Errorf("%v, %v, want %v", got.IDs(), err, ring.IDs())
	}
	if !cmp.Equal(got.With(ring).IDs(), ring.IDs()) {
		t.Errorf("with itself: %v", got.With(ring).IDs())
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := seal.Read(file); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others read: %v", err)
	}
	left, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(left) != 1 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	ring, _ := seal.Ring{}.WithNew()
	good := string(ring.Text())
	for name, text := range map[string]string{
		"a word": "hello\n", "cut": strings.TrimRight(good, "\n")[:len(good)-5], "longer": strings.TrimRight(good, "\n") + "AA",
		"another version": strings.ReplaceAll(good, "key-1", "key-2"), "a long line": strings.Repeat("x", 1<<20),
	} {
		_, err := seal.Parse([]byte(text))
		if err == nil {
			t.Errorf("%s: taken", name)
		} else if strings.Contains(err.Error(), good[len(good)-30:len(good)-6]) {
			t.Errorf("%s: the error has the key: %v", name, err)
		}
	}
	if got, err := seal.Parse([]byte("\n" + strings.ReplaceAll(good, "\n", "\r\n") + "# end")); err != nil || len(got.IDs()) != 1 {
		t.Errorf("with blanks: %v, %v", got.IDs(), err)
	}
}

// TestIDsTellNothing: neither the ids nor the printed form of a ring contain a key.
func TestIDsTellNothing(t *testing.T) {
	t.Parallel()
	ring, id := seal.Ring{}.WithNew()
	_, encoded, _ := strings.Cut(string(ring.Text()), "key-1:")
	secret, err := base64.RawURLEncoding.DecodeString(strings.TrimSpace(encoded))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(hex.EncodeToString(secret), id) {
		t.Error("the id is a part of the key")
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if got, want := fmt.Sprintf(format, ring), "["+id+"]"; got != want {
			t.Errorf("%s: %s, want %s", format, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	ring, _ := seal.Ring{}.WithNew()
	f.Add(ring.Text())
	f.Add([]byte("portolan-sealing-key-1:\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		ring, err := seal.Parse(text)
		if err != nil {
			return
		}
		if again, err := seal.Parse(ring.Text()); err != nil || !cmp.Equal(again.IDs(), ring.IDs()) {
			t.Errorf("%v, %v", again.IDs(), err)
		}
	})
}
