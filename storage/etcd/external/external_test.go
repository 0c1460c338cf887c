package external_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/etcd/dial"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/etcd/external"
)

func TestVersions(t *testing.T) {
	t.Parallel()
	for release, want := range map[string]string{
		"3.4.99": "too old", "2.3.8": "too old", "3.5.0": "3.5.33", "3.5.32": "GHSA-xg4h-6gfc-h4m8", "3.5.33": "",
		"3.6.13": "3.6.14", "3.6.14": "", "3.7.0": "GHSA-6vch-q96h-7gc3", "3.7.0-rc.0": "3.7.1", "3.7.1": "", "3.7.3": "",
		"3.8.0": "", "4.0.0": "", "latest": `calls its version "latest"`,
	} {
		flaw, err := external.JudgeVersion(release)
		refused := strings.HasPrefix(release, "3.4") || strings.HasPrefix(release, "2") || release == "latest"
		if (err != nil) != refused {
			t.Errorf("%s: refused with %v", release, err)
		}
		if got := flaw + errorText(err); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q in it", release, got, want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestStartNamesWhatIsWrong: Start fails where waiting would not help.
func TestStartNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := etcdtest.NewSecured(t)
	etcdtest.Etcdctl(t, s.Dial(t, "root"), "user add stranger")
	other := etcdtest.NewAuthority(t)
	cases := map[string]struct {
		adjust func(o *dial.Options, f *dial.Files)
		want   string
	}{
		"wrong authority":   {func(_ *dial.Options, f *dial.Files) { f.CA = other.File }, "signed by none of the authorities that are trusted"},
		"wrong server name": {func(_ *dial.Options, f *dial.Files) { f.ServerName = "db.test" }, `its certificate is not for the name "db.test"`},
		"no certificate":    {func(_ *dial.Options, f *dial.Files) { f.Cert, f.Key = "", "" }, "does not take this client's certificate, or wants one"},
		"a certificate that etcd does not trust": {func(_ *dial.Options, f *dial.Files) {
			pair := other.Issue(t, "client")
			f.Cert, f.Key = pair.Cert, pair.Key
		}, "does not take this client's certificate, or wants one"},
		"a file that is gone": {func(_ *dial.Options, f *dial.Files) { f.CA = "/nowhere/ca.pem" }, "/nowhere/ca.pem"},
		"wrong password": {func(o *dial.Options, _ *dial.Files) {
			o.Password = func() (string, error) { return "hunter2", nil }
		}, `etcd does not know user "portolan" by this password`},
		"no password": {func(o *dial.Options, _ *dial.Files) {
			o.Password = func() (string, error) { return "", errors.New("the file is empty") }
		}, "there is no password to tell etcd: the file is empty"},
		"no user":          {func(o *dial.Options, _ *dial.Files) { o.User, o.Password = "", nil }, "user of this certificate"},
		"a user of no use": {func(o *dial.Options, _ *dial.Files) { o.User, o.Password = "stranger", passwordOf("stranger") }, `does not let user "stranger" read /portolan/`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, files := s.As("portolan"), s.Files
			c.adjust(&o, &files)
			o.TLS = files.Config
			log, logger := newLines()
			o.Logger = logger
			_, err := start(t, external.Options{Dial: o, Logger: logger})
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %q", err, c.want)
			}
			for _, secret := range []string{"hunter2", etcdtest.Passwords("portolan")} {
				if strings.Contains(log.String()+errorText(err), secret) {
					t.Errorf("the password is told: %v\n%s", err, log)
				}
			}
		})
	}
}

func TestOneSpeaksTLSAndTheOtherDoesNot(t *testing.T) {
	t.Parallel()
	plain := etcdtest.NewServer(t, etcdtest.At(t, "http://127.0.0.1:0")).Endpoint
	cluster, err := start(t, external.Options{Dial: dial.Options{
		Endpoints: []string{strings.Replace(plain, "http", "https", 1)}, TLS: dial.Files{CA: etcdtest.NewAuthority(t).File}.Config,
	}})
	if err != nil {
		t.Error(err)
	}
	awaitReason(t, cluster, "use http:// if it is to be reached without")

	tls := etcdtest.NewServer(t, etcdtest.NewAuthority(t).TLS(t, "0")).Endpoint
	_, err = start(t, external.Options{Dial: dial.Options{Endpoints: []string{strings.Replace(tls, "https", "http", 1)}}})
	if err == nil || !strings.Contains(err.Error(), "it speaks TLS: use https://") {
		t.Error(err)
	}
}

// TestWaitsForAClusterThatIsAway: Start runs before the cluster does.
func TestWaitsForAClusterThatIsAway(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "http://" + listener.Addr().String()
	_ = listener.Close()
	log, logger := newLines()
	begun := time.Now()
	cluster, err := start(t, external.Options{Dial: dial.Options{Endpoints: []string{endpoint}}, Logger: logger})
	if err != nil || time.Since(begun) > 20*time.Second {
		t.Fatalf("after %s: %v", time.Since(begun), err)
	}
	awaitReason(t, cluster, "connection refused")
	begun = time.Now()
	if _, err := cluster.Client().Get(t.Context(), "/portolan/v1/x"); err == nil || !strings.Contains(err.Error(), "etcd has not answered for") || time.Since(begun) > 20*time.Second {
		t.Errorf("a read, after %s: %v", time.Since(begun), err)
	}
	etcdtest.NewServer(t, etcdtest.At(t, endpoint))
	awaitReady(t, cluster)
	for _, want := range []string{"etcd cannot be used, it is asked again and again", "etcd can be used again"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q: %s", want, log)
		}
	}
}

// TestFollowsUsersAndRoles changes the permissions and the password of the user while
// the Cluster runs.
func TestFollowsUsersAndRoles(t *testing.T) {
	t.Parallel()
	s := etcdtest.NewSecured(t)
	root := s.Dial(t, "root")
	var password atomic.Pointer[string]
	set := func(p string) { password.Store(&p) }
	set(etcdtest.Passwords("portolan"))
	o := s.As("portolan")
	o.Password = func() (string, error) { return *password.Load(), nil }
	cluster, err := start(t, external.Options{Dial: o})
	if err != nil {
		t.Fatal(err)
	}
	awaitReady(t, cluster)

	etcdtest.Etcdctl(t, root, "role revoke-permission portolan /portolan/ /portolan0")
	awaitReason(t, cluster, `does not let user "portolan" read /portolan/v1/`)
	etcdtest.Etcdctl(t, root, "role grant-permission portolan read /portolan/ /portolan0")
	awaitReason(t, cluster, `lets user "portolan" read /portolan/v1/ but not write there`)
	etcdtest.Etcdctl(t, root, "role grant-permission portolan readwrite /portolan/ /portolan0")
	awaitReady(t, cluster)

	if _, err := root.UserChangePassword(t.Context(), "portolan", "another"); err != nil {
		t.Fatal(err)
	}
	awaitReason(t, cluster, `does not know user "portolan" by this password`)
	set("another")
	awaitReady(t, cluster)
	if _, err := cluster.Client().Put(t.Context(), "/portolan/v1/side/x", ""); err != nil {
		t.Error(err)
	}
}

// TestFollowsCertificates replaces the authority and both certificates while the cluster
// is away, as in a restart.
func TestFollowsCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	place := func(name, from string) string {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, name)
		if err := os.WriteFile(to, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return to
	}
	files := func(a *etcdtest.Authority) dial.Files {
		pair := a.Issue(t, "client")
		return dial.Files{CA: place("ca", a.File), Cert: place("cert", pair.Cert), Key: place("key", pair.Key)}
	}
	first, second := etcdtest.NewAuthority(t), etcdtest.NewAuthority(t)
	old := etcdtest.NewServer(t, first.TLS(t, "0"))
	mine := files(first)
	cluster, err := start(t, external.Options{Dial: dial.Options{Endpoints: []string{old.Endpoint}, TLS: mine.Config}})
	if err != nil {
		t.Fatal(err)
	}
	awaitReady(t, cluster)
	old.Stop()
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(old.Endpoint, "https://"))
	etcdtest.NewServer(t, second.TLS(t, port))
	awaitReason(t, cluster, "signed by none of the authorities that are trusted")
	files(second)
	awaitReady(t, cluster)
}

func TestReaderMayServe(t *testing.T) {
	t.Parallel()
	s := etcdtest.NewSecured(t)
	cluster, err := start(t, external.Options{Dial: s.As("portolan-reader")})
	if err != nil {
		t.Fatal(err)
	}
	awaitReason(t, cluster, `lets user "portolan-reader" read /portolan/v1/ but not write there`)
}

// TestDeathEndsWhatWaits: when the cluster dies, a call that waits for a connection ends
// before its own deadline. An etcd that refuses connections counts as away sooner than a
// silent one.
func TestDeathEndsWhatWaits(t *testing.T) {
	t.Parallel()
	server := etcdtest.NewServer(t, etcdtest.At(t, "http://127.0.0.1:0"))
	cluster, err := start(t, external.Options{
		Dial: dial.Options{Endpoints: []string{server.Endpoint}}, Interval: 100 * time.Millisecond, Grace: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	awaitReady(t, cluster)
	server.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := cluster.Client().Get(ctx, "/portolan/v1/x"); err == nil || ctx.Err() != nil {
		t.Errorf("a read as etcd died: %v", err)
	}
	awaitReason(t, cluster, "connection refused")
}
