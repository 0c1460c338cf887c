package modules

import (
	"iter"

	extensions "istio.io/api/extensions/v1alpha1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/wasm"
)

// Module is the content of a module. It is never modified.
type Module struct {
	Sum   string
	Bytes []byte
}

// Set is what a server knows of modules at a time. It is never modified, and comparable. The zero
// Set knows none.
type Set struct {
	modules pmap.Map[*Module]        // by sum
	served  pmap.Map[*config.Config] // the last version whose module was there, by path
	faults  pmap.Map[string]         // why the last fetch failed, by faultKey
	lacking pmap.Map[*config.Config] // the WasmPlugins whose own module is not there, by path
}

// With returns the Set with a module.
func (s Set) With(m *Module) Set {
	s.modules = s.modules.Set(m.Sum, m)
	return s
}

// Serving returns the Set with a version of a WasmPlugin as the last whose module was there.
func (s Set) Serving(c *config.Config) Set {
	s.served = s.served.Set(c.Key().Path(), c)
	return s
}

// Lacking returns the WasmPlugins whose own module is not there, by path and in the order of their paths.
func (s Set) Lacking() iter.Seq2[string, *config.Config] { return s.lacking.All() }

// Version is the version of a WasmPlugin that counts.
type Version struct {
	// Config is nil for an object that a former server stored and this one would refuse: nothing says
	// where its module comes from, and it has no effect.
	Config *config.Config
	// Module is the module that the servers send; nil if the proxies have a file, or if Missing.
	Module *Module
	// Missing: the module is not there, and was for no version.
	Missing bool
}

// Version returns the version of a WasmPlugin that counts: this one if its module is there, else the
// last whose module was there, else this one without a module.
func (s Set) Version(c *config.Config) Version {
	if m, there := s.has(c); there {
		return Version{Config: c, Module: m}
	}
	if last := s.served.Value(c.Key().Path()); last != nil {
		if m, there := s.has(last); there {
			return Version{Config: last, Module: m}
		}
	}
	if sourceOf(c) == (wasm.Source{}) {
		return Version{}
	}
	return Version{Config: c, Missing: true}
}

// Has says whether the module of a WasmPlugin is there, or is a file on the machines of the proxies.
func (s Set) Has(c *config.Config) bool {
	_, there := s.has(c)
	return there
}

// Fault returns why the last fetch of the module of a WasmPlugin failed; empty if none did.
func (s Set) Fault(c *config.Config) string { return s.faults.Value(faultKey(sourceOf(c))) }

func (s Set) has(c *config.Config) (*Module, bool) {
	source := sourceOf(c)
	m := s.modules.Value(source.Sum)
	return m, m != nil || source.File != ""
}

// sourceOf returns where the module of a WasmPlugin comes from, nothing if this server would refuse it.
func sourceOf(c *config.Config) wasm.Source {
	spec := c.Spec.(*extensions.WasmPlugin)
	source, atURL, atSum := wasm.SourceOf(spec.GetUrl(), spec.GetSha256())
	if atURL != nil || atSum != nil {
		return wasm.Source{}
	}
	if source.File != "" {
		source.Sum = "" // nobody checks it
	}
	return source
}

func faultKey(s wasm.Source) string { return s.Sum + " " + s.URL }
