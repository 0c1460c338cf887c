package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// imageUser is the user in images: nobody's on most machines.
const imageUser = 65532

// command is what an image does unless its user says otherwise.
var command = map[string][]string{
	"portolan":       {"serve", "--data-dir", "/var/lib/portolan/store"},
	"portolan-agent": {"run", "--no-envoy"},
}

// image writes the container image: the binary alone, as a tar archive with an OCI layout. All that
// the binary writes lies in its volume, so that the root may be read-only.
func (p product) image() error {
	layer, err := p.layer()
	if err != nil {
		return err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: p.date}, CreatedBy: "make dist"}})
	if err != nil {
		return err
	}
	labels := map[string]string{
		"org.opencontainers.image.title":    p.name,
		"org.opencontainers.image.version":  p.packageVersion(),
		"org.opencontainers.image.revision": p.revision,
		"org.opencontainers.image.created":  p.date.Format("2006-01-02T15:04:05Z"),
		"org.opencontainers.image.source":   "https://github.com/portolan-mesh/portolan",
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", p.arch, v1.Time{Time: p.date}
	state := "/var/lib/" + p.name
	config.Config = v1.Config{
		User: "65532:65532", Entrypoint: []string{"/usr/bin/" + p.name}, Cmd: command[p.name], WorkingDir: state,
		Env: []string{"PATH=/usr/bin", "HOME=" + state, "TMPDIR=" + state}, Volumes: map[string]struct{}{state: {}}, Labels: labels,
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}
	annotated, ok := mutate.Annotations(image, labels).(v1.Image)
	if !ok {
		return errors.New("the annotated image is none")
	}
	return p.writeLayout(annotated)
}

// layer returns the one layer: the binary, its user, and the directories that the user writes to.
func (p product) layer() (v1.Layer, error) {
	binary, err := os.ReadFile(p.binary())
	if err != nil {
		return nil, err
	}
	out := &bytes.Buffer{}
	w := tar.NewWriter(out)
	for _, e := range []struct {
		name string
		mode int64
		own  bool
		body []byte
	}{
		{name: "etc/", mode: 0o755},
		{name: "etc/" + p.name + "/", mode: 0o755},
		{name: "etc/group", mode: 0o644, body: []byte("root:x:0:\n" + p.name + ":x:65532:\n")},
		{name: "etc/passwd", mode: 0o644, body: []byte("root:x:0:0::/:/\n" + p.name + ":x:65532:65532::/var/lib/" + p.name + ":/\n")},
		{name: "run/", mode: 0o755},
		{name: "run/" + p.name + "/", mode: 0o755, own: true},
		{name: "tmp/", mode: 0o1777},
		{name: "usr/", mode: 0o755},
		{name: "usr/bin/", mode: 0o755},
		{name: "usr/bin/" + p.name, mode: 0o755, body: binary},
		{name: "var/", mode: 0o755},
		{name: "var/lib/", mode: 0o755},
		{name: "var/lib/" + p.name + "/", mode: 0o700, own: true},
	} {
		h := &tar.Header{Name: e.name, Mode: e.mode, ModTime: p.date, Size: int64(len(e.body)), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if e.body == nil {
			h.Typeflag = tar.TypeDir
		}
		if e.own {
			h.Uid, h.Gid = imageUser, imageUser
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.body); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil }, tarball.WithMediaType(types.OCILayer))
}

// writeLayout writes an image as a tar archive, which docker load, podman load and skopeo read.
func (p product) writeLayout(image v1.Image) error {
	dir := filepath.Join(p.stage, p.arch, p.name+".oci")
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	name := "portolan-mesh/" + p.name
	tag := "latest"
	err = path.AppendImage(image, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          name + ":" + tag,
		"org.opencontainers.image.ref.name": tag,
	}), layout.WithPlatform(v1.Platform{OS: "linux", Architecture: p.arch}))
	if err != nil {
		return err
	}
	return create(p.file(".oci.tar"), func(out io.Writer) error {
		w := tar.NewWriter(out)
		err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(dir, file)
			if err != nil {
				return err
			}
			if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, ModTime: p.date, Size: int64(len(text)), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}); err != nil {
				return err
			}
			_, err = w.Write(text)
			return err
		})
		return errors.Join(err, w.Close())
	})
}
