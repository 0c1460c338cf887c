package sealing_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/sealing"
	"github.com/portolan-mesh/portolan/storage/secret"
)

// records keeps a Record in memory, as etcd does.
type records struct {
	mu   sync.Mutex
	held sealing.Record
}

func (r *records) SealingRecord(context.Context) (sealing.Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held, nil
}

func (r *records) SetSealingRecord(_ context.Context, from, to sealing.Record) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held.Revision != from.Revision {
		return false, nil
	}
	to.Revision = from.Revision + 1
	r.held = to
	return true, nil
}

// server is a Sealer with a file of its own.
func server(t *testing.T, r *records) *sealing.Sealer {
	t.Helper()
	return sealing.New(filepath.Join(t.TempDir(), "sealing.key"), r)
}

func object(data map[string][]byte) *config.Config {
	return &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.Secret, Namespace: "shop", Name: "door"},
		Spec: &secret.Spec{Data: data},
	}
}

func mustSeal(t *testing.T, s *sealing.Sealer, of, stored *config.Config) *config.Config {
	t.Helper()
	out, err := s.Seal(t.Context(), of, stored, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := out.Spec.(*secret.Spec).CheckStored(); err != nil {
		t.Fatal(err)
	}
	return out
}

func content(of *config.Config) string { return of.Spec.(*secret.Spec).Sealed.Content }

func TestSealing(t *testing.T) {
	t.Parallel()
	s := server(t, &records{})
	asked := object(map[string][]byte{"password": []byte("hunter2"), "empty": {}})
	asked.Spec.(*secret.Spec).StringData = map[string]string{"word": "swordfish", "password": "hunter3"}
	asked.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "hunter3", "a": "b"}
	before, err := config.ToJSON(asked, "")
	if err != nil {
		t.Fatal(err)
	}
	stored := mustSeal(t, s, asked, nil)
	if after, _ := config.ToJSON(asked, ""); !bytes.Equal(before, after) {
		t.Error("the object that came was changed")
	}
	data, err := s.Open(stored)
	if d := cmp.Diff(map[string][]byte{"password": []byte("hunter3"), "empty": {}, "word": []byte("swordfish")}, data); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	text, err := config.MarshalSpec(stored.Spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"hunter3", "swordfish", base64.StdEncoding.EncodeToString([]byte("hunter3"))} {
		if bytes.Contains(text, []byte(word)) {
			t.Errorf("what is stored has %q: %s", word, text)
		}
	}
	if d := cmp.Diff(map[string]string{"a": "b"}, stored.Annotations); d != "" {
		t.Errorf("annotations (-want +got):\n%s", d)
	}
	shown := config.Shown(stored).Spec.(*secret.Spec)
	want := &secret.Spec{Type: secret.Opaque, Sealed: &secret.Sealed{Content: content(stored), Entries: []secret.Entry{{Name: "empty"}, {Name: "password", Bytes: 7}, {Name: "word", Bytes: 9}}}}
	if d := cmp.Diff(want, shown); d != "" {
		t.Errorf("shown (-want +got):\n%s", d)
	}
	other := stored.Clone()
	other.Name = "window"
	if _, err := s.Open(other); err == nil {
		t.Error("the box of another object was opened")
	}
}

// TestWhatIsKept: the same data, and a document without data, keep the stored box.
func TestWhatIsKept(t *testing.T) {
	t.Parallel()
	s := server(t, &records{})
	stored := mustSeal(t, s, object(map[string][]byte{"a": []byte("1")}), nil)
	again := mustSeal(t, s, object(map[string][]byte{"a": []byte("1")}), stored)
	if !config.SameSpec(again.Spec, stored.Spec) {
		t.Error("the same data was sealed anew")
	}
	document := config.Shown(stored).Clone()
	document.Labels = map[string]string{"a": "b"}
	if kept := mustSeal(t, s, document, stored); !config.SameSpec(kept.Spec, stored.Spec) || len(kept.Labels) != 1 {
		t.Error("a document without data did not keep it")
	}
	changed := mustSeal(t, s, object(map[string][]byte{"a": []byte("2")}), stored)
	if content(changed) == content(stored) {
		t.Error("changed data has the same content id")
	}
	if _, err := s.Seal(t.Context(), document, changed, false); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("a document of former data: %v", err)
	}
	if _, err := s.Seal(t.Context(), document, nil, false); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("a document without data, of nothing stored: %v", err)
	}
	emptied := mustSeal(t, s, object(nil), stored)
	if data, err := s.Open(emptied); err != nil || len(data) != 0 {
		t.Errorf("emptied: %v, %v", data, err)
	}
}

func TestWhatNeverChanges(t *testing.T) {
	t.Parallel()
	s, yes := server(t, &records{}), true
	asked := object(map[string][]byte{"a": []byte("1")})
	asked.Spec.(*secret.Spec).Immutable = &yes
	stored := mustSeal(t, s, asked, nil)
	mustSeal(t, s, asked, stored)
	other := object(map[string][]byte{"a": []byte("2")})
	if _, err := s.Seal(t.Context(), other, stored, false); !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), "immutable") {
		t.Errorf("an immutable secret: %v", err)
	}
	of := object(map[string][]byte{"a": []byte("1")})
	of.Spec.(*secret.Spec).Type = "another"
	if _, err := s.Seal(t.Context(), of, stored, false); !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), "type") {
		t.Errorf("another type: %v", err)
	}
}

// TestATrialChangesNothing: a trial makes no key and seals nothing.
func TestATrialChangesNothing(t *testing.T) {
	t.Parallel()
	r := &records{}
	s := server(t, r)
	if _, err := s.Seal(t.Context(), object(map[string][]byte{"a": []byte("1")}), nil, true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.File()); !os.IsNotExist(err) || r.held.Key != "" {
		t.Errorf("%v, %+v", err, r.held)
	}
	if _, err := sealing.New("", r).Seal(t.Context(), object(nil), nil, true); !errors.Is(err, storage.ErrUnavailable) {
		t.Errorf("a trial on a server without a file: %v", err)
	}
}

// TestTwoServers: the first secret makes the key of the store, and the other server gets it
// by export and import. An added key does not seal before Use.
func TestTwoServers(t *testing.T) {
	t.Parallel()
	r := &records{}
	first, second := server(t, r), server(t, r)
	stored := mustSeal(t, first, object(map[string][]byte{"a": []byte("1")}), nil)
	if _, err := second.Seal(t.Context(), object(nil), nil, false); !errors.Is(err, storage.ErrUnavailable) || !strings.Contains(err.Error(), "import") {
		t.Errorf("without the key: %v", err)
	}
	if _, err := second.Open(stored); err == nil {
		t.Error("opened without the key")
	}
	added, err := second.Import(first.Ring().Text())
	if err != nil || !cmp.Equal(added, first.Ring().IDs()) {
		t.Fatalf("%v, %v", added, err)
	}
	if data, err := second.Open(stored); err != nil || string(data["a"]) != "1" {
		t.Errorf("%v, %v", data, err)
	}
	if again := sealing.New(second.File(), r); !cmp.Equal(again.Ring().IDs(), first.Ring().IDs()) {
		t.Errorf("after a restart: %v", again.Ring().IDs())
	}

	id, err := first.AddKey()
	if err != nil {
		t.Fatal(err)
	}
	if box := mustSeal(t, first, object(nil), nil).Spec.(*secret.Spec).Sealed.Box; box.Key == id {
		t.Error("a key that was only added seals")
	}
	if err := second.Use(t.Context(), id, false); err == nil {
		t.Error("a server uses a key that it does not have")
	}
	if err := first.Use(t.Context(), id, false); err != nil {
		t.Fatal(err)
	}
	resealed, changed, err := first.Reseal(t.Context(), stored)
	if err != nil || !changed || content(resealed) != content(stored) || resealed.Spec.(*secret.Spec).Sealed.Box.Key != id {
		t.Fatalf("%v, %v", changed, err)
	}
	if data, err := first.Open(resealed); err != nil || string(data["a"]) != "1" {
		t.Errorf("%v, %v", data, err)
	}
	if _, changed, err := first.Reseal(t.Context(), resealed); err != nil || changed {
		t.Errorf("once more: %v, %v", changed, err)
	}
	if data, err := second.Open(stored); err != nil || string(data["a"]) != "1" {
		t.Errorf("the old key opens no more: %v, %v", data, err)
	}
}

// TestManyFirstSecrets: of several servers that store the first secret at once, one makes
// the key, and the others return an error that says to import it.
func TestManyFirstSecrets(t *testing.T) {
	t.Parallel()
	r := &records{}
	var mu sync.Mutex
	var errs []error
	var all sync.WaitGroup
	for range 8 {
		s := server(t, r)
		all.Go(func() {
			_, err := s.Seal(t.Context(), object(nil), nil, false)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	all.Wait()
	done := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err != nil })
	for _, err := range errs {
		if err != nil && !errors.Is(err, storage.ErrUnavailable) {
			t.Error(err)
		}
	}
	if len(done) != 1 {
		t.Errorf("%d servers sealed, of 8: %v", len(done), errs)
	}
}

// TestABadFile: a file that cannot be read is reported, and never overwritten.
func TestABadFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "sealing.key")
	if err := os.WriteFile(file, []byte("no key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := sealing.New(file, &records{})
	if s.Ready() == nil {
		t.Error("a bad file is no fault")
	}
	_, sealed := s.Seal(t.Context(), object(nil), nil, false)
	_, added := s.AddKey()
	for what, err := range map[string]error{"seal": sealed, "add": added} {
		if !errors.Is(err, storage.ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "no key\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestADamagedRecord: a damaged record is reported.
func TestADamagedRecord(t *testing.T) {
	t.Parallel()
	r := &records{}
	s := server(t, r)
	mustSeal(t, s, object(nil), nil)
	r.held.Check.Value = append([]byte(nil), r.held.Check.DataKey...)
	if _, err := s.Seal(t.Context(), object(nil), nil, false); !errors.Is(err, storage.ErrUnavailable) || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("%v", err)
	}
	if _, err := json.Marshal(r.held); err != nil {
		t.Error(err)
	}
}

// TestALostKey: once a key is declared lost, another key seals new secrets, and new data
// replaces a secret that nobody can open.
func TestALostKey(t *testing.T) {
	t.Parallel()
	r := &records{}
	stored := mustSeal(t, server(t, r), object(map[string][]byte{"a": []byte("1")}), nil)
	s := server(t, r)
	id, err := s.AddKey()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Use(t.Context(), id, false); !errors.Is(err, storage.ErrUnavailable) {
		t.Errorf("the key of another server is given up: %v", err)
	}
	if err := s.Use(t.Context(), id, true); err != nil {
		t.Fatal(err)
	}
	again := mustSeal(t, s, object(map[string][]byte{"a": []byte("1")}), stored)
	if data, err := s.Open(again); err != nil || string(data["a"]) != "1" {
		t.Errorf("%v, %v", data, err)
	}
}
