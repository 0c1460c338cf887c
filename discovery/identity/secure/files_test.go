package secure_test

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery/identity/secure"
	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/storage/logtest"
)

// TestPairFollowsItsFiles: a new pair is used; an unusable one is reported and changes
// nothing.
func TestPairFollowsItsFiles(t *testing.T) {
	t.Parallel()
	authority, dir := securetest.New(t, "root"), t.TempDir()
	first, second := authority.Issue(t, securetest.Leaf{Names: []string{"a"}}), authority.Issue(t, securetest.Leaf{Names: []string{"b"}})
	files := authority.Write(t, dir, first)
	if _, err := secure.LoadPair(files.Cert, dir+"/none"); err == nil || !strings.Contains(err.Error(), dir+"/none") {
		t.Errorf("without a key: %v", err)
	}
	if _, err := secure.LoadRoots(files.Key); err == nil || !strings.Contains(err.Error(), files.Key) {
		t.Errorf("a key as roots: %v", err)
	}
	pair, err := secure.LoadPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	log := &logtest.Log{}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = pair.Run(ctx, slog.New(slog.NewTextHandler(log, nil))) })
	defer running.Wait()
	defer cancel()
	if err := pair.Degraded(); err != nil || !pair.Leaf().Equal(first.Parsed) {
		t.Errorf("at first: %v, %v", pair.Leaf().DNSNames, err)
	}
	authority.Write(t, dir, second)
	eventually(t, "the second is used", func() bool { return pair.Leaf().Equal(second.Parsed) }, log.String)
	if err := os.WriteFile(files.Key, first.Key, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the mismatch is told", func() bool { return pair.Degraded() != nil }, log.String)
	if got, _ := pair.Certificate(nil); !got.Leaf.Equal(second.Parsed) {
		t.Error("a pair that does not match is in use")
	}
	authority.Write(t, dir, first)
	eventually(t, "the first is used again", func() bool { return pair.Leaf().Equal(first.Parsed) && pair.Degraded() == nil }, log.String)
	if strings.Contains(log.String(), "PRIVATE") {
		t.Error("a key is in the log")
	}
}

func TestExpiring(t *testing.T) {
	t.Parallel()
	authority, now := securetest.New(t, "root"), time.Now()
	for _, c := range []struct {
		want string
		leaf securetest.Leaf
	}{
		{"", securetest.Leaf{From: now.Add(-time.Hour), Until: now.Add(time.Hour)}},
		{"", securetest.Leaf{From: now.Add(-1000 * time.Hour), Until: now.Add(200 * time.Hour)}},
		{"expires in 120h", securetest.Leaf{From: now.Add(-1000 * time.Hour), Until: now.Add(120*time.Hour + time.Second)}},
		{"expires in ", securetest.Leaf{From: now.Add(-10 * time.Hour), Until: now.Add(time.Hour)}},
		{"expired at ", securetest.Leaf{From: now.Add(-10 * time.Hour), Until: now.Add(-time.Hour)}},
		{"is not valid before ", securetest.Leaf{From: now.Add(time.Hour), Until: now.Add(2 * time.Hour)}},
	} {
		err := secure.Expiring(authority.Issue(t, c.leaf).Parsed, now)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.leaf, err)
		}
	}
}
