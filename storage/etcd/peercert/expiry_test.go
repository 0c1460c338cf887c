package peercert

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics returns how many metrics a collector has.
func metrics(t *testing.T, of prometheus.Collector) (n int) {
	t.Helper()
	registry := prometheus.NewRegistry()
	if err := registry.Register(of); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		n += len(f.GetMetric())
	}
	return n
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	d := In(filepath.Join(t.TempDir(), "data"))
	k, err := d.Open("10.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	member, err := readCertificate(d.file(certFile))
	if err != nil {
		t.Fatal(err)
	}
	f := Files(k.Files())
	if e, err := f.Expiry(); err != nil || !e.Certificate.Equal(member.NotAfter) || !e.Authority.Equal(k.authority.NotAfter) {
		t.Errorf("they end at %v, %v", e, err)
	}
	if n := metrics(t, f); n != 2 {
		t.Errorf("%d metrics", n)
	}
	for _, c := range []struct {
		at   time.Time
		want []string
	}{
		{member.NotAfter.Add(-life/5 - time.Hour), nil},
		{member.NotAfter.Add(-life/5 + 2*time.Hour), []string{"the certificate of this member of the store ends on " + member.NotAfter.UTC().Format(time.RFC3339)}},
		{member.NotAfter, []string{"the certificate of this member of the store ended on"}},
		{k.authority.NotAfter.Add(-warning + time.Hour), []string{"the authority of the store's members ends on " + k.authority.NotAfter.UTC().Format(time.RFC3339)}},
	} {
		err := f.at(c.at)
		if len(c.want) == 0 && err != nil {
			t.Errorf("%s: %v", c.at, err)
		}
		for _, words := range c.want {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %v, and not %q", c.at, err, words)
			}
		}
	}

	// Of several authorities the one that ends first counts.
	newer := &Keeper{dir: d, hosts: k.hosts}
	if err := newer.begin(); err != nil {
		t.Fatal(err)
	}
	bundle := append(inPEM(newer.authority.Raw), inPEM(k.authority.Raw)...)
	if err := d.write(caFile, bundle); err != nil {
		t.Fatal(err)
	}
	first := k.authority // made before
	if e, err := f.Expiry(); err != nil || !e.Authority.Equal(first.NotAfter) {
		t.Errorf("of several: %v, %v", e.Authority, err)
	}
	if err := os.WriteFile(d.file(caFile), []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Degraded(); err == nil || !strings.Contains(err.Error(), "no certificate in PEM") {
		t.Errorf("without an authority: %v", err)
	}
	if n := metrics(t, f); n != 0 {
		t.Errorf("%d metrics of what cannot be read", n)
	}
}

// counter counts the lines that say what needs care.
type counter struct{ n atomic.Int64 }

func (c *counter) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "need care") {
		c.n.Add(1)
	}
	return len(line), nil
}

// TestWatch: an error is logged when it begins, and once a day.
func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var lines counter
		var fault atomic.Pointer[error]
		fault.Store(new(error))
		done := make(chan error, 1)
		go func() {
			done <- Watch(ctx, func() error { return *fault.Load() }, slog.New(slog.NewTextHandler(&lines, nil)))
		}()
		for _, step := range []struct {
			fault error
			after time.Duration
			want  int64
		}{
			{nil, 0, 0}, {errors.New("it ends"), interval + time.Minute, 1}, {errors.New("it ends"), 20 * time.Hour, 1}, {errors.New("it ends"), 6 * time.Hour, 2},
			{nil, 2 * interval, 2}, {errors.New("it ends"), 2 * interval, 3},
		} {
			synctest.Wait()
			fault.Store(&step.fault)
			time.Sleep(step.after)
			synctest.Wait()
			if got := lines.n.Load(); got != step.want {
				t.Errorf("%v after %s: %d lines, want %d", step.fault, step.after, got, step.want)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
