package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/portolan-mesh/portolan/xds/xdstest/refmesh"
)

// measureGrid measures the selected cells, and prints each when it is done.
func measureGrid(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp(o.dir, "portolan-load-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	all := &report{}
	meshes := map[refmesh.Mesh]string{}
	printHeader(os.Stdout)
	for _, c := range grid() {
		if !o.cells.MatchString(c.name) {
			continue
		}
		at, written := meshes[c.mesh]
		if !written {
			if at, err = writeMesh(ctx, o, c.mesh, filepath.Join(dir, fmt.Sprint(len(meshes)))); err != nil {
				return fmt.Errorf("%s: write the mesh: %w", c.name, err)
			}
			meshes[c.mesh] = at
		}
		r := &results{cell: c, floors: map[string]float64{}, report: all}
		all.cells = append(all.cells, r)
		err := measureCell(ctx, o, at, r)
		r.print(os.Stdout)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	fmt.Printf("\nload %s\n", machineLoad())
	if missed := all.missed(); o.strict && len(missed) > 0 {
		return fmt.Errorf("%d targets are missed: %s", len(missed), strings.Join(missed, ", "))
	}
	return nil
}

// writeMesh runs a server that writes a mesh into a new directory, and ends it. Each cell with
// this mesh runs a new server on the directory.
func writeMesh(ctx context.Context, o options, mesh refmesh.Mesh, dir string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	if mesh.HalfInCluster {
		return dir, nil // the cell writes both halves
	}
	s, err := startServer(ctx, o.binary, dir)
	if err != nil {
		return "", err
	}
	return dir, errors.Join(s.write(ctx, mesh.Objects()), s.stop())
}
