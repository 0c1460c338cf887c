package objects

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/go-multierror"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/cores"
	"github.com/portolan-mesh/portolan/storage/schema"
)

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

// readSpecs decodes the specs that were left for later.
func (m *manifest) readSpecs() {
	documents, err := config.ReadSpecs(m.documents)
	m.documents = documents
	m.fault(err)
}

// validate reports the faults that the server would find in the objects.
func (m *manifest) validate() {
	warnings, errs := make([][]schema.Warning, len(m.documents)), make([]error, len(m.documents))
	cores.Each(len(m.documents), func(i int) {
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
	cores.Each(len(m.documents), func(i int) {
		out[i].Verb = verb
		out[i].Object, errs[i] = m.documents[i].JSON()
	})
	for i, d := range m.documents {
		if errs[i] != nil {
			return nil, exit.With(exit.Data, d.Fault("", errs[i].Error()))
		}
	}
	return out, nil
}
