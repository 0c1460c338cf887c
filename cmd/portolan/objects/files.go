package objects

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/help"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/cores"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// extensions lists the extensions of the files that are read in a directory.
var extensions = []string{".yaml", ".yml", ".json"}

// fileFlags say which files a command reads, and the namespace for objects that name none.
type fileFlags struct {
	names     []string
	built     string // the directory of -k
	recursive bool
	namespace string
	// exported is true if fields that only a server sets are read, too.
	exported bool
	// later leaves specs undecoded until manifest.readSpecs: the server finds their faults.
	later bool
}

func (f *fileFlags) register(c *cobra.Command, verb string) {
	flags := c.Flags()
	flags.StringArrayVarP(&f.names, "filename", "f", nil, "file, directory or URL with the objects to "+verb+", or - for stdin; may be repeated")
	flags.StringVarP(&f.built, "kustomize", "k", "", "directory with a kustomization.yaml, which kustomize or kubectl builds first")
	flags.BoolVarP(&f.recursive, "recursive", "R", false, "read the subdirectories of -f too")
	flags.StringVarP(&f.namespace, "namespace", "n", "", `namespace of objects that name none (default $PORTOLAN_NAMESPACE, else "default"); those that name another are refused`)
	_ = c.MarkFlagFilename("filename", "yaml", "yml", "json")
	_ = c.MarkFlagDirname("kustomize")
}

// said returns the names of the files as the user gave them.
func (f *fileFlags) said() string {
	if f.built != "" {
		return f.built
	}
	return strings.Join(cli.MapSlice(f.names, sourceOf), ", ")
}

// none says whether no file is named.
func (f *fileFlags) none() bool { return len(f.names) == 0 && f.built == "" }

// asIfApplied reads the files of a command that asks about their objects as if they were applied,
// and returns the operations that would do so, on the mesh; nothing without -f. done is what was to become of
// them, such as "analyzed".
func (f *fileFlags) asIfApplied(ctx context.Context, env *environment, done string) (*manifest, []batch.Operation, error) {
	if f.none() {
		return nil, nil, nil
	}
	m, err := f.read(ctx, env)
	if err != nil {
		return nil, nil, err
	}
	m.validate()
	if err := m.err(done); err != nil {
		return nil, nil, err
	}
	m.documents = slices.DeleteFunc(m.documents, func(d config.Document) bool { return cli.BesideMesh(d.Config.GroupVersionKind) })
	operations, err := m.operations(batch.Apply)
	return m, operations, err
}

// Files is the flag -f of a command of another group that asks about objects as if they were
// applied.
type Files struct{ flags fileFlags }

// Register adds the flags.
func (f *Files) Register(c *cobra.Command) {
	f.flags.register(c, "take as if they were applied")
}

// Namespace returns the value of -n, empty if it was not given.
func (f *Files) Namespace() string { return f.flags.namespace }

// Operations returns the operations that would apply the objects of the files; none without -f.
func (f *Files) Operations(ctx context.Context, line *cli.Environment) ([]batch.Operation, error) {
	_, operations, err := f.flags.asIfApplied(ctx, &environment{line}, "asked about")
	return operations, err
}

// read reads all files, and prints which folders it passes over. The manifest collects the
// faults of the files; the returned error is about the command line.
func (f *fileFlags) read(ctx context.Context, env *environment) (*manifest, error) {
	if f.built != "" && (len(f.names) > 0 || f.recursive) {
		return nil, exit.With(exit.Usage, errors.New("-k is a directory that is built first, and -f files as they are: leave one of them out"))
	}
	if first := slices.Index(f.names, "-"); first >= 0 && slices.Contains(f.names[first+1:], "-") {
		return nil, exit.With(exit.Usage, errors.New("-f - is given twice: stdin can be read once"))
	}
	m := &manifest{schemas: cli.WithSide(env.Schemas), fallback: env.Namespace}
	var all []reading
	if f.built != "" {
		m.sources, all = []string{f.built}, []reading{{file: f.built, built: true}}
	}
	for _, name := range f.names {
		files, passed, err := f.list(name)
		if err != nil {
			all = append(all, reading{err: err})
		}
		if len(files) > 0 && passed.files > 0 {
			m.passed = append(m.passed, passed)
			them := "it"
			if passed.folders > 1 {
				them = "them"
			}
			fmt.Fprintf(env.Stderr, "-f %s: passed over %s: -R reads %s too\n", name, passed, them)
		}
		for _, file := range files {
			m.sources, all = append(m.sources, sourceOf(file)), append(all, reading{file: file})
		}
	}
	decode := f.decoder()
	defer debug.SetGCPercent(debug.SetGCPercent(readingGC))
	cores.Each(len(all), func(i int) {
		if all[i].file != "" {
			all[i].decode(ctx, env, m.schemas, decode)
		}
	})
	for _, r := range all {
		m.documents = append(m.documents, r.documents...)
		m.fault(r.err)
	}
	if len(m.documents) == 0 && m.faults.ErrorOrNil() == nil {
		m.fault(fmt.Errorf("%s: no objects there", f.said()))
	}
	m.setNamespaces(f.namespace)
	m.reportDuplicates()
	return m, nil
}

// readingGC is the garbage collector's percentage while files are read. What they leave is a
// fraction of what reading them takes, and the command ends soon.
const readingGC = 400

// list returns the files that an argument of -f stands for, sorted, and what it passes over.
// Hidden folders do not count there.
func (f *fileFlags) list(name string) ([]string, passedOver, error) {
	none := passedOver{}
	if name == "-" || isURL(name) {
		return []string{name}, none, nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, none, unreadable(name, err)
	}
	if !info.IsDir() {
		return []string{name}, none, nil
	}
	var files []string
	passed, folders := passedOver{name: name}, map[string]bool{}
	err = fs.WalkDir(os.DirFS(name), ".", func(path string, entry fs.DirEntry, err error) error {
		below := !f.recursive && path != "." && (strings.Contains(path, "/") || entry.IsDir())
		switch {
		case err != nil && below:
			return fs.SkipDir
		case err != nil:
			return err
		case below && entry.IsDir() && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case entry.IsDir() || !slices.Contains(extensions, filepath.Ext(path)):
		case below:
			passed.files++
			folders[filepath.Dir(path)] = true
		default:
			files = append(files, filepath.Join(name, path))
		}
		return nil
	})
	passed.folders = len(folders)
	switch {
	case err != nil:
		return nil, none, unreadable(name, err)
	case len(files) == 0 && f.recursive:
		return nil, none, fmt.Errorf("-f %s: no file in it ends in %s", name, help.Alternatives(extensions))
	case len(files) == 0:
		return nil, none, fmt.Errorf("-f %s: no file in it ends in %s: -R looks in its subdirectories too", name, help.Alternatives(extensions))
	}
	return files, passed, nil
}

// unreadable returns the error for a file that cannot be read.
func unreadable(name string, err error) error { return unreadableAt("-f", name, err) }

func unreadableAt(flag, name string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("%s %s: %w", flag, sourceOf(name), err)
}

// sourceOf returns the name of a file for errors.
func sourceOf(file string) string {
	switch {
	case file == "-":
		return "stdin"
	case isURL(file):
		return shownURL(file)
	}
	return file
}

// decoder returns the function that decodes the objects of one file.
func (f *fileFlags) decoder() func(string, []byte, config.Resolver) ([]config.Document, error) {
	switch {
	case f.exported:
		return config.DecodeExported
	case f.later:
		return config.DecodeLater
	}
	return config.Decode
}

// reading is what was read of one file; without a file, an error about an argument.
type reading struct {
	file      string
	built     bool // the file is a directory that is built
	documents []config.Document
	err       error
}

func (r *reading) decode(ctx context.Context, env *environment, schemas schema.Set, decode func(string, []byte, config.Resolver) ([]config.Document, error)) {
	data, err := r.read(ctx, env)
	if err != nil {
		r.err = err
		return
	}
	r.documents, r.err = decode(sourceOf(r.file), data, schemas.Type)
}

func (r *reading) read(ctx context.Context, env *environment) (data []byte, err error) {
	switch {
	case r.built:
		return kustomize(ctx, env, r.file)
	case r.file == "-":
		data, err = cli.ReadAll(env.Stdin)
	case isURL(r.file):
		data, err = fetch(ctx, r.file)
	default:
		data, err = cli.ReadFile(r.file)
	}
	if err != nil {
		return nil, unreadable(r.file, err)
	}
	return data, nil
}
