package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/storage/config"
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
}

func (f *fileFlags) register(c *cobra.Command, verb string) {
	flags := c.Flags()
	flags.StringArrayVarP(&f.names, "filename", "f", nil, "file, directory or URL with the objects to "+verb+", or - for stdin; may be repeated")
	flags.StringVarP(&f.built, "kustomize", "k", "", "directory with a kustomization.yaml, which is built first, as kubectl apply -k does")
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
// and returns the operations that would do so; nothing without -f. done is what was to become of
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

// Operations returns the operations that would apply the objects of the files; none without -f.
func (f *Files) Operations(ctx context.Context, line *cli.Environment) ([]batch.Operation, error) {
	_, operations, err := f.flags.asIfApplied(ctx, &environment{line}, "asked about")
	return operations, err
}

// manifest holds the objects and the faults of all files.
type manifest struct {
	schemas   schema.Set
	fallback  string   // namespace for objects that name none, if -n does not
	sources   []string // the names of the files, in order
	documents []config.Document
	passed    []passedOver
	faults    *multierror.Error
	warnings  []string // from validate
}

// passedOver counts the subfolders of a directory that are not read, and their files.
type passedOver struct {
	name           string // name of the directory
	folders, files int
}

// String formats how many folders and files there are.
func (p passedOver) String() string {
	return cli.CountOf(p.folders, "folder") + " with " + cli.CountOf(p.files, "file")
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
	m := &manifest{schemas: env.Schemas, fallback: env.Namespace}
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
	onAllCores(len(all), func(i int) {
		if all[i].file != "" {
			all[i].decode(ctx, env.Stdin, m.schemas, decode)
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
		return nil, none, fmt.Errorf("-f %s: no file in it ends in %s", name, cli.Alternatives(extensions))
	case len(files) == 0:
		return nil, none, fmt.Errorf("-f %s: no file in it ends in %s: -R looks in its subdirectories too", name, cli.Alternatives(extensions))
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
	if f.exported {
		return config.DecodeExported
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

func (r *reading) decode(ctx context.Context, stdin io.Reader, schemas schema.Set, decode func(string, []byte, config.Resolver) ([]config.Document, error)) {
	data, err := r.read(ctx, stdin)
	if err != nil {
		r.err = err
		return
	}
	r.documents, r.err = decode(sourceOf(r.file), data, schemas.Type)
}

func (r *reading) read(ctx context.Context, stdin io.Reader) (data []byte, err error) {
	switch {
	case r.built:
		return kustomize(r.file)
	case r.file == "-":
		data, err = io.ReadAll(stdin)
	case isURL(r.file):
		data, err = fetch(ctx, r.file)
	default:
		data, err = os.ReadFile(r.file)
	}
	if err != nil {
		return nil, unreadable(r.file, err)
	}
	return data, nil
}

// onAllCores calls do with each number from 0 to n-1, several calls at a time.
func onAllCores(n int, do func(i int)) {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		group.Go(func() error {
			do(i)
			return nil
		})
	}
	_ = group.Wait() // none fails
}

// If err consists of several errors, fault adds each.
func (m *manifest) fault(err error) {
	if err != nil {
		m.faults = multierror.Append(m.faults, err)
	}
}

// setNamespaces sets the namespaces of objects that name none.
func (m *manifest) setNamespaces(namespace string) {
	for _, d := range m.documents {
		switch {
		case m.schemas.Kind(d.Config.GroupVersionKind).ClusterScoped:
		case d.Config.Namespace == "" && namespace == "":
			d.Config.Namespace = m.fallback
		case d.Config.Namespace == "":
			d.Config.Namespace = namespace
		case namespace != "" && d.Config.Namespace != namespace:
			m.fault(d.Fault("metadata.namespace", fmt.Sprintf("is %q, and -n says %q: leave one of them out", d.Config.Namespace, namespace)))
		}
	}
}

// reportDuplicates reports objects that occur twice, in one file or in several.
func (m *manifest) reportDuplicates() {
	first := map[config.Key]config.Document{}
	for _, d := range m.documents {
		key := d.Config.Key()
		if other, taken := first[key]; taken && key.Name != "" {
			m.fault(d.Fault("", "is there twice, also in "+position(other)))
			continue
		}
		first[key] = d
	}
}

// position formats the place of a document as in errors.
func position(d config.Document) string {
	return (&config.DecodeError{Source: d.Source, Index: d.Index, Line: d.Line, Item: d.Item}).Error()
}

// validate reports the faults that the server would find in the objects.
func (m *manifest) validate() {
	warnings, errs := make([][]schema.Warning, len(m.documents)), make([]error, len(m.documents))
	onAllCores(len(m.documents), func(i int) {
		object := m.documents[i].Config
		warnings[i], errs[i] = m.schemas.Kind(object.GroupVersionKind).Validate(object)
	})
	for i, d := range m.documents {
		for _, w := range warnings[i] {
			m.warnings = append(m.warnings, fmt.Sprintf("%s: %s", d.Config.Key(), w))
		}
		for _, one := range config.Faults(errs[i]) {
			var fault *schema.FieldError
			if errors.As(one, &fault) {
				m.fault(d.Fault(fault.Field, fault.Message))
			} else {
				m.fault(d.Fault("", one.Error()))
			}
		}
	}
}

// err returns the faults, in the order of the documents; nil for none. done says what was not done
// because of them.
func (m *manifest) err(done string) error {
	if m.faults != nil {
		slices.SortStableFunc(m.faults.Errors, func(a, b error) int { return slices.Compare(m.place(a), m.place(b)) })
	}
	if err := cli.NothingDone(done, m.faults); err != nil {
		return exit.With(exit.Data, err)
	}
	return nil
}

// place returns where the document of a fault is: its file and its number there. Other faults come
// first.
func (m *manifest) place(fault error) []int {
	var of *config.DecodeError
	if !errors.As(fault, &of) {
		return nil
	}
	return []int{slices.Index(m.sources, of.Source), of.Index}
}

// operations returns the operations that write the objects, in order.
func (m *manifest) operations(verb batch.Verb) ([]batch.Operation, error) {
	out, errs := make([]batch.Operation, len(m.documents)), make([]error, len(m.documents))
	onAllCores(len(m.documents), func(i int) { out[i], errs[i] = batch.Write(verb, m.documents[i].Config) })
	for i, d := range m.documents {
		if errs[i] != nil {
			return nil, exit.With(exit.Data, d.Fault("", errs[i].Error()))
		}
	}
	return out, nil
}
