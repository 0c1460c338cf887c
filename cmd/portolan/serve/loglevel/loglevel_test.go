package loglevel_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
)

func TestParse(t *testing.T) {
	t.Parallel()
	all := func(level string) string {
		var out []string
		for _, c := range loglevel.Components() {
			out = append(out, string(c)+"="+level)
		}
		return strings.Join(out, ",")
	}
	for text, want := range map[string]string{
		"info": all("info"), "WARN": all("warn"), "xds=debug": "xds=debug", " api=error , etcd=warn": "api=error,etcd=warn",
		"debug":            strings.Replace(all("debug"), "etcd=debug", "etcd=info", 1),
		"debug,etcd=debug": all("debug"),
		"info,xds=debug":   strings.Replace(all("info"), "xds=info", "xds=debug", 1),
		"xds=debug,warn":   strings.Replace(all("warn"), "xds=warn", "xds=debug", 1),
	} {
		spec, err := loglevel.Parse(text)
		if err != nil || spec.String() != want {
			t.Errorf("%q: %s, %v; want %s", text, spec, err, want)
		}
		if again, err := loglevel.Parse(want); err != nil || again.String() != want {
			t.Errorf("%q again: %s, %v", want, again, err)
		}
	}
	for text, want := range map[string][]string{
		"":                    {`"": a level is debug, info, warn or error`},
		"loud":                {`"loud": a level is`},
		"info,":               {`"": a level is`},
		"xds":                 {`"xds": a level is`},
		"xds=":                {`"xds=": a level is`},
		"=info":               {`there is no component ""`},
		"xsd=debug":           {`there is no component "xsd": did you mean xds: there are api, cache, etcd, identity, jobs, registries, server, store, xds`},
		"info,warn":           {`"warn": info is for all components before that`},
		"xds=info,xds=warn":   {`"xds=warn": xds has a level before that`},
		"a=info,b=loud,api=x": {`component "a"`, `component "b"`, `"api=x": a level is`},
	} {
		spec, err := loglevel.Parse(text)
		for _, words := range want {
			if err == nil || !strings.Contains(err.Error(), words) || spec != nil {
				t.Errorf("%q: %v, %v; want %q", text, spec, err, words)
			}
		}
	}
}

// logger returns a logger, and what it wrote since the last call.
func logger(levels *loglevel.Levels) (*slog.Logger, func() string) {
	out := &bytes.Buffer{}
	to := slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	return slog.New(loglevel.NewHandler(to, levels)), func() string {
		defer out.Reset()
		return out.String()
	}
}

// TestLines: each line names its component, after its other attributes, and is written by the level of
// that, also of loggers that were made before a change.
func TestLines(t *testing.T) {
	t.Parallel()
	levels := loglevel.New(loglevel.Spec{loglevel.XDS: slog.LevelDebug, loglevel.API: slog.LevelError})
	log, written := logger(levels)
	xds, api := log.With(loglevel.XDS.Attr(), "a", 1), log.With("b", 2).With(loglevel.API.Attr())
	log.Info("one", "c", 3)
	log.Debug("two")
	xds.Debug("three")
	api.Warn("four")
	api.Error("five")
	api.With(loglevel.XDS.Attr()).Debug("six")
	log.With("component", "another").Info("seven")
	xds.WithGroup("g").With("d", 4).Info("eight", "e", 5)
	want := `level=INFO msg=one c=3 component=server
level=DEBUG msg=three a=1 component=xds
level=ERROR msg=five b=2 component=api
level=DEBUG msg=six b=2 component=xds
level=INFO msg=seven component=another component=server
level=INFO msg=eight a=1 component=xds g.d=4 g.e=5
`
	if got := written(); got != want {
		t.Errorf("it is\n%s\nwant\n%s", got, want)
	}
	levels.Set(loglevel.Spec{loglevel.XDS: slog.LevelWarn, loglevel.API: slog.LevelDebug}, 0)
	xds.Info("one")
	api.Debug("two")
	if got := written(); got != "level=DEBUG msg=two b=2 component=api\n" {
		t.Errorf("after a change: %s", got)
	}
}

// describe returns the states that are not info, as COMPONENT=LEVEL(WAS,THEN,UNTIL).
func describe(begun time.Time, states []loglevel.State) string {
	var out []string
	for _, s := range states {
		text := fmt.Sprintf("%s=%s(%s", s.Component, loglevel.Word(s.Level), loglevel.Word(s.Was))
		if !s.Until.IsZero() {
			text += fmt.Sprintf(",%s,%s", loglevel.Word(s.Then), s.Until.Sub(begun))
		}
		if s.Level != slog.LevelInfo || s.Was != slog.LevelInfo || !s.Until.IsZero() {
			out = append(out, text+")")
		}
	}
	return strings.Join(out, " ")
}

// TestLevelsThatEnd: a level with a limit gives way to the last one without.
func TestLevelsThatEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		levels := loglevel.New(loglevel.Spec{loglevel.API: slog.LevelWarn})
		var told atomic.Int64
		levels.Watch(func() { told.Add(1) })
		set := func(text string, limit time.Duration, want string) {
			t.Helper()
			spec, err := loglevel.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(begun, levels.Set(spec, limit)); got != want {
				t.Errorf("%s for %s: %s, want %s", text, limit, got, want)
			}
		}
		after := func(to time.Duration, want string, changes int64) {
			t.Helper()
			time.Sleep(time.Until(begun.Add(to)))
			synctest.Wait()
			if got := describe(begun, levels.States()); got != want || told.Load() != changes {
				t.Errorf("at %s: %s, told %d times; want %s, %d", to, got, told.Load(), want, changes)
			}
		}
		set("xds=debug,api=debug", 10*time.Minute, "api=debug(warn,warn,10m0s) xds=debug(info,info,10m0s)")
		after(time.Minute, "api=debug(debug,warn,10m0s) xds=debug(debug,info,10m0s)", 1)
		set("xds=error", 4*time.Minute, "xds=error(debug,info,5m0s)") // shortens, and ends at the same
		set("api=error", 0, "api=error(debug)")
		after(5*time.Minute, "api=error(error)", 4)
		set("cache=debug", time.Minute, "cache=debug(info,info,6m0s)")
		set("cache=debug", 30*time.Minute, "cache=debug(debug,info,35m0s)")
		after(10*time.Minute, "api=error(error) cache=debug(debug,info,35m0s)", 6)
		after(35*time.Minute, "api=error(error)", 7)
		if levels.Spec()[loglevel.API] != slog.LevelError || len(levels.Spec()) != len(loglevel.Components()) {
			t.Errorf("levels: %s", levels.Spec())
		}
	})
}
