package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/integration/load/fleet"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/files"
)

// followed is a server whose whole mesh comes from a directory, with proxies.
type followed struct {
	*server
	dir   string
	fleet *fleet.Fleet
}

// files measures changes through the API and by a directory in turns, each on a server of its
// own with proxies of its own. So a disturbance of the machine affects both.
func (m *run) files(ctx context.Context, dir string) (err error) {
	through, stop, err := m.firstSync(ctx, m.server.Process, m.server.xds, nil, m.add)
	if err != nil {
		return err
	}
	defer stop()
	by, stopped, err := m.follow(ctx, filepath.Join(dir, "files"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopped()) }()
	if err := wait(ctx, afterSync); err != nil {
		return err
	}
	for _, kind := range m.cell.changes {
		if !m.options.changes.MatchString(kind) {
			continue
		}
		if err := m.inTurns(ctx, kind, through, by); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	m.note("a file is read once it is at rest for %s: that time is left out", files.DefaultSettle)
	return nil
}

// follow starts a server on a directory with the whole mesh, a file for each object.
func (m *run) follow(ctx context.Context, dir string) (f *followed, stop func() error, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	f = &followed{dir: filepath.Join(dir, "mesh")}
	objects := m.cell.mesh.Objects()
	for _, object := range objects {
		if err := f.write(object); err != nil {
			return nil, nil, err
		}
	}
	began := time.Now()
	if f.server, err = startServer(ctx, m.binary, dir, slices.Concat(m.flags, []string{"--config-dir", f.dir})...); err != nil {
		return nil, nil, err
	}
	if err := f.awaitObjects(ctx, len(objects)); err != nil {
		return nil, nil, errors.Join(err, f.server.stop())
	}
	m.add("start with the directory", seconds, time.Since(began).Seconds())
	all, end, err := m.firstSync(context.WithoutCancel(ctx), f.Process, f.xds, nil, func(string, unit, float64) {})
	if err != nil {
		return nil, nil, errors.Join(err, f.server.stop())
	}
	f.fleet = all
	return f, func() error { end(); return f.server.stop() }, nil
}

// write writes the file of an object elsewhere, and moves it into the directory.
func (f *followed) write(object *config.Config) error {
	name := filepath.Join(f.dir, object.Namespace, strings.ToLower(object.Kind)+"-"+object.Name+".yaml")
	text, err := config.ToYAML(object)
	if err != nil {
		return err
	}
	hidden := filepath.Join(filepath.Dir(name), "."+filepath.Base(name))
	return errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(hidden, text, 0o600), os.Rename(hidden, name))
}

// awaitObjects waits until the server has all objects of the directory.
func (f *followed) awaitObjects(ctx context.Context, count int) error {
	for {
		var text strings.Builder
		var list serve.SourceList
		if err := f.get(ctx, serve.SourcesPath, &text); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(text.String()), &list); err != nil {
			return err
		}
		for i := range list.Items {
			has := 0
			for _, n := range list.Items[i].Objects {
				has += n
			}
			if has == count {
				return nil
			}
		}
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// inTurns makes changes of a kind, alternately through the API and by a file. The first pair
// warms up, and is not counted.
func (m *run) inTurns(ctx context.Context, kind string, through *fleet.Fleet, by *followed) error {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	var api, file changed
	for n := range m.reps + 1 {
		change := makeChange(m.cell.mesh, kind, n)
		err := m.once(ctx, through, m.server.Process, kind, change.Mark, &api, func() error { return m.server.apply(ctx, change) })
		if err != nil {
			return fmt.Errorf("through the API: %w", err)
		}
		err = m.once(ctx, by.fleet, by.Process, kind, change.Mark, &file, func() error { return by.write(change.Objects[0]) })
		if err != nil {
			return fmt.Errorf("by a file: %w", err)
		}
		if n == 0 {
			api, file = changed{}, changed{}
		}
	}
	for i := range file.took {
		file.took[i] -= files.DefaultSettle
	}
	for i := range file.p99s {
		file.p99s[i] -= files.DefaultSettle
	}
	m.addTimes(kind, api)
	m.addTimes(byFile(kind), file)
	return nil
}

// addTimes adds the times and the processor time of a change as figures.
func (m *run) addTimes(kind string, c changed) {
	m.add(median(kind), seconds, quantile(c.took, 0.5).Seconds())
	m.add(p99(kind), seconds, quantile(c.took, 0.99).Seconds())
	m.add(changeCPU(kind), seconds, c.cpu.Seconds()/float64(c.reps))
}
