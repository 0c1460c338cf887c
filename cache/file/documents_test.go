package file_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/file"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestBrokenDocuments: while a document of a file is broken, no object of the file goes,
// and its other documents are followed.
func TestBrokenDocuments(t *testing.T) {
	t.Parallel()
	s := follow(t, t.TempDir())
	s.put("all.yaml", entries(t, 1, "x", "y", "z"))
	s.awaitRound("z", "1")
	for i, bad := range []string{broken("y"), "a: [b\n", "kind: ServiceEntry\n", "7\n", strings.Replace(entry(t, "y", 9), "kind: ServiceEntry", "kind: ServiceEntri", 1)} {
		round := i + 2
		s.put("all.yaml", entry(t, "x", round)+"---\n"+bad+"---\n"+entry(t, "z", round))
		s.awaitRound("z", fmt.Sprint(round))
		s.awaitRound("x", fmt.Sprint(round))
		s.awaitRound("y", "1")
		p := s.awaitProblem("all.yaml", "document 2 (line ")
		if all := s.Problems(); len(all) != 1 {
			t.Errorf("the problems are %v", all)
		}
		if !p.Serving || i == 0 && p.Object != "serviceentry/a/y" {
			t.Errorf("the problem is %+v", p)
		}
	}
	if n := s.log.count("kept=true"); n != 5 || s.log.count("kept=false") > 0 || s.log.count("is gone") > 0 {
		t.Errorf("the log has kept=true %d times, want 5", n)
	}
	s.put("new.yaml", "a: [b\n")
	if p := s.awaitProblem("new.yaml", ""); p.Serving {
		t.Errorf("a broken file that is new has served nothing: %+v", p)
	}
	must(t, os.Remove(s.path("new.yaml")))
	since := s.Problems()[0].Since
	s.put("all.yaml", broken("x"))
	s.awaitProblem("all.yaml", "document 1")
	for _, name := range []string{"x", "y", "z"} {
		s.neverWithout(2, name)
	}
	s.put("all.yaml", entries(t, 9, "y"))
	s.awaitRound("x", "-")
	s.awaitRound("y", "9")
	s.awaitSound()
	s.await("the log has that the faults are gone", func() bool { return s.log.count("a fault of configuration is gone") == 3 })
	if time.Since(since) < 0 {
		t.Error("the fault lies in the future")
	}
}

// TestFaultsOfObjects: objects that the config API would refuse are left out and
// reported.
func TestFaultsOfObjects(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"future":  strings.Replace(entry(t, "f", 1), "metadata:\n", "metadata:\n  creationTimestamp: \"2999-01-01T00:00:00Z\"\n", 1),
		"version": strings.Replace(entry(t, "v", 1), "networking.istio.io/v1", "networking.istio.io/v9", 1),
		"beside":  "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata: {mesh: ''}\n",
		"event":   "apiVersion: events.k8s.io/v1\nkind: Event\nmetadata: {name: e, namespace: a}\n",
		"kind":    "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n",
		"nobody":  "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nspec: {hosts: [a.b]}\n",
		"secret":  "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: a}\nstringData: {a: b}\n",
	} {
		write(t, filepath.Join(dir, name+".yaml"), text)
	}
	write(t, filepath.Join(dir, "sound.yaml"), entry(t, "x", 1))
	s := follow(t, dir)
	s.awaitRound("x", "1")
	for name, words := range map[string]string{
		"future": "metadata.creationTimestamp: is in the future", "version": "is not served as apiVersion", "kind": "unknown kind",
		"beside": "is an object MeshConfig of portolan.io/v1 here", "event": "kind Event configures nothing in the mesh",
		"nobody": "metadata.name: is missing", "secret": "is taken from the store alone",
	} {
		if p := s.awaitProblem(name+".yaml", words); p.Serving || !strings.Contains(p.Where, "(line 1)") {
			t.Errorf("the problem is %+v", p)
		}
	}
	if n := s.Snapshot().Configs().Len(); n != 1 {
		t.Errorf("%d objects are there", n)
	}
}

// TestManyBroken has 1,000 broken documents among 10,000, some of them in one file.
func TestManyBroken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const perFile, count = 500, 20
	text := func(from int, sound bool) string {
		var all []string
		for i := from; i < from+perFile; i++ {
			if i%10 == 0 && !sound {
				all = append(all, broken(fmt.Sprint("x", i)))
			} else {
				all = append(all, minimal(fmt.Sprint("x", i)))
			}
		}
		return strings.Join(all, "---\n")
	}
	for i := range count {
		write(t, filepath.Join(dir, fmt.Sprintf("%02d.yaml", i)), text(i*perFile, false))
	}
	s := follow(t, dir)
	if n, wrong := s.Snapshot().Configs().Len(), len(s.Problems()); n != count*perFile*9/10 || wrong != count*perFile/10 {
		t.Fatalf("%d objects and %d problems", n, wrong)
	}
	if n := s.log.count("is at fault"); n > 20 {
		t.Errorf("%d lines were logged", n)
	}
	s.put("07.yaml", text(7*perFile, true))
	s.await("the rest of a file is there", func() bool {
		return s.Snapshot().Configs().Len() == count*perFile*9/10+perFile/10 && len(s.Problems()) == (count-1)*perFile/10
	})
	if s.Snapshot().Revision() != 2 {
		t.Errorf("one file has made %d snapshots", s.Snapshot().Revision()-1)
	}
}

// minimal is a short object.
func minimal(name string) string {
	return "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: " + name + ", namespace: a}\n" +
		"spec: {hosts: [" + name + ".example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC}\n"
}

// TestDuplicates: the first file counts, and the next one takes its place.
func TestDuplicates(t *testing.T) {
	t.Parallel()
	s := follow(t, t.TempDir())
	s.put("b.yaml", entry(t, "x", 2))
	s.awaitRound("x", "2")
	s.put("a.yaml", entries(t, 1, "x", "y"))
	s.awaitRound("x", "1")
	p := s.awaitProblem("b.yaml", "is there twice", "a.yaml: document 1 (line 1) counts")
	if p.Object != "serviceentry/a/x" || p.Since.IsZero() {
		t.Errorf("the problem is %+v", p)
	}
	s.put("b.yaml", entry(t, "x", 3)) // shadowed
	s.put("c.yaml", entry(t, "x", 4)+"---\n"+entry(t, "x", 5))
	s.await("there are three more", func() bool { return len(s.Problems()) == 3 })
	if place, ok := s.FileOf(cachetest.Key("a", "x")); !ok || place.File != "a.yaml" || place.Document != 1 {
		t.Errorf("x is of %v", place)
	}
	s.put("a.yaml", entry(t, "y", 1))
	s.awaitRound("x", "3")
	must(t, os.Remove(s.path("b.yaml")))
	s.awaitRound("x", "4")
	s.neverWithout(s.first("x"), "x")
	must(t, os.Remove(s.path("c.yaml")))
	s.awaitRound("x", "-")
	s.awaitSound()
	if _, ok := s.FileOf(cachetest.Key("a", "x")); ok {
		t.Error("what is gone has a file")
	}
}

// first returns the revision of the first snapshot from which on an object exists.
func (s *scene) first(name string) int64 {
	s.t.Helper()
	all := s.snapshots()
	i := slices.IndexFunc(all, func(snapshot *cache.Snapshot) bool { return snapshot.Get(cachetest.Key("a", name)) != nil })
	return all[i].Revision()
}

// TestSameEverywhere: two caches of the same files have the same objects, whatever the
// times of the files and the order of changes.
func TestSameEverywhere(t *testing.T) {
	t.Parallel()
	one, two := follow(t, t.TempDir()), follow(t, t.TempDir())
	dated := strings.Replace(entry(t, "z", 1), "metadata:\n", "metadata:\n  creationTimestamp: \"2020-01-02T03:04:05Z\"\n  resourceVersion: \"17\"\n  uid: u\n  generation: 9\n", 1)
	one.put("x.yaml", entry(t, "x", 0))
	one.awaitRound("x", "0")
	one.put("x.yaml", entries(t, 1, "x", "y"))
	one.put("z.yaml", dated)
	two.put("deep/all.yaml", dated+"---\n"+entry(t, "y", 1))
	two.put("x.json", jsonOf(t, cachetest.ServiceEntry("a", "x", 1)))
	for _, s := range []*scene{one, two} {
		for _, name := range []string{"x", "y", "z"} {
			s.awaitRound(name, "1")
		}
	}
	if a, b := cachetest.Digest(t, one.Cache), cachetest.Digest(t, two.Cache); a != b {
		t.Error("they differ")
	}
	x, z := one.Snapshot().Get(cachetest.Key("a", "x")), one.Snapshot().Get(cachetest.Key("a", "z"))
	if !x.CreationTimestamp.Equal(time.Unix(0, 0)) || !z.CreationTimestamp.Equal(time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("they are of %s and %s", x.CreationTimestamp, z.CreationTimestamp)
	}
	if x.ResourceVersion[0] != 'f' || x.UID == "" || x.UID == z.UID || z.UID == "u" || z.Generation != 1 {
		t.Errorf("they have %+v and %+v", x.Meta, z.Meta)
	}
}

func jsonOf(t testing.TB, object *config.Config) string {
	t.Helper()
	text, err := config.ToJSON(object, "")
	must(t, err)
	return string(text)
}

// TestNamespaces: objects that name no namespace are in the default one. Objects in
// another namespace than their folder's are reported.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	bare := strings.Replace(entry(t, "bare", 1), "  namespace: a\n", "", 1)
	s := follow(t, t.TempDir(), func(o *file.Options) { o.Domain = "cluster.local" })
	s.put("a/x.yaml", entry(t, "x", 1))
	s.put("b/y.yaml", entry(t, "y", 1)) // a folder that is not a namespace's
	s.put("bare.yaml", bare)
	s.awaitRound("x", "1")
	s.awaitRound("y", "1")
	s.await("bare is there", func() bool { return s.Snapshot().Get(key(schema.ServiceEntry, "default", "bare")) != nil })
	s.awaitSound()
	if domain := s.Snapshot().Get(cachetest.Key("a", "x")).Domain; domain != "cluster.local" {
		t.Errorf("the domain is %q", domain)
	}
	must(t, os.Rename(s.path("bare.yaml"), s.path("a/bare.yaml")))
	p := s.awaitProblem("a/bare.yaml", "is in the namespace default")
	if !p.Warning || !p.Serving {
		t.Errorf("the problem is %+v", p)
	}
	must(t, os.Remove(s.path("a/x.yaml")))
	s.awaitSound()
}

// TestRestart: after a restart a broken document is absent, and reported.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, stop := launch(t, dir)
	first.await("it has synced", first.HasSynced)
	first.put("all.yaml", entries(t, 1, "x", "y"))
	first.awaitRound("y", "1")
	first.put("all.yaml", broken("x")+"---\n"+entry(t, "y", 2))
	first.awaitRound("y", "2")
	first.awaitRound("x", "1")
	stop()
	second := follow(t, dir)
	second.awaitRound("y", "2")
	if round := second.round("x"); round != "-" {
		t.Errorf("x is of round %s", round)
	}
	if p := second.awaitProblem("serviceentry/a/x"); p.Serving {
		t.Errorf("the problem is %+v", p)
	}
}

// TestStatus: the counts are right.
func TestStatus(t *testing.T) {
	t.Parallel()
	s := follow(t, t.TempDir())
	s.put("x.yaml", entries(t, 1, "x", "y")+"---\n"+broken("z"))
	s.put("list.yaml", "apiVersion: v1\nkind: List\nitems:\n- "+strings.ReplaceAll(strings.TrimSpace(minimal("l")), "\n", "\n  ")+"\n- {kind: Nothing, apiVersion: v1}\n")
	s.awaitRound("x", "1")
	s.awaitProblem("list.yaml", "items[1]")
	got := s.Status()
	got.LastChange = time.Time{}
	if d := cmp.Diff(file.Status{Dir: s.dir, Files: 2, Objects: 3, Broken: 2}, got); d != "" {
		t.Error(d)
	}
	if s.Ready() != nil {
		t.Error("it is not ready")
	}
}
