package delivery_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// mesh is what the server offers at one time. All traffic goes to clusters that exist.
type mesh struct{ lines map[string]string } // content by "TYPE name"

// change draws the next state of a mesh, with several changes at once.
func (m *mesh) change(t *rapid.T, v protocol.Variant) {
	one := func(label string, n int) int { return rapid.IntRange(0, n-1).Draw(t, label) }
	secrets := m.secrets(t, one)
	for range rapid.IntRange(1, 3).Draw(t, "clusters") {
		i := one("cluster", 5)
		name := fmt.Sprintf("c%d", i)
		kind := map[int]string{3: "", 4: "dns"}[i]
		if i < 3 {
			kind = ">" + name
		}
		if one("there", 3) == 0 {
			delete(m.lines, "CDS "+name)
			delete(m.lines, "EDS "+name)
			continue
		}
		m.lines["CDS "+name] = fmt.Sprint(kind, secrets("its secret"), " v", one("version", 2))
		if i < 3 {
			m.lines["EDS "+name] = fmt.Sprint("v", one("endpoints", 3))
		}
	}
	var clusters []string
	for _, line := range slices.Sorted(maps.Keys(m.lines)) {
		if name, ok := strings.CutPrefix(line, "CDS "); ok {
			clusters = append(clusters, name)
		}
	}
	leads := func(label string) string {
		if len(clusters) == 0 || one(label, 6) == 0 {
			return " -"
		}
		return " @" + rapid.SampledFrom(clusters).Draw(t, label)
	}
	for r := range 2 {
		if one("table", 3) == 0 {
			m.routes(t, v, fmt.Sprintf("r%d", r), leads, one)
		}
	}
	for l := range 3 {
		name := fmt.Sprintf("LDS l%d", l)
		switch one("listener", 5) {
		case 0:
			delete(m.lines, name)
		case 1:
			m.lines[name] = fmt.Sprint("tcp", secrets("a secret"), leads("tcp"))
		case 2:
			m.lines[name] = fmt.Sprint(">r", one("routes", 2), secrets("a secret"), secrets("another"), leads("also"))
		}
	}
	for r := range 2 {
		name := fmt.Sprintf("r%d", r)
		if one("all of a table", 6) == 0 {
			m.unlisten(name)
		}
		switch _, there := m.lines["RDS "+name]; {
		case m.listens(name) && !there:
			m.routes(t, v, name, leads, one)
		case !m.listens(name) && one("table goes", 2) == 0:
			m.tableGoes(name)
		}
	}
	m.repair(leads)
	if one("mend", 2) == 0 {
		m.mend()
	}
	if one("spoil", 5) == 0 && len(m.lines) > 0 {
		m.lines[rapid.SampledFrom(slices.Sorted(maps.Keys(m.lines))).Draw(t, "spoilt")] += " bad"
	}
}

// secrets draws which secrets exist. It returns a function that draws the need of one, or
// of none. Resources that needed a secret that is gone do not need it any more.
func (m *mesh) secrets(t *rapid.T, one func(string, int) int) func(label string) string {
	var there []string
	for i := range 3 {
		name := fmt.Sprintf("s%d", i)
		switch _, has := m.lines["SDS "+name]; one("secret", 6) {
		case 0:
			if delete(m.lines, "SDS "+name); has {
				for line, content := range m.lines {
					m.lines[line] = strings.ReplaceAll(content, "$"+name, "")
				}
			}
			continue
		case 1, 2:
			m.lines["SDS "+name] = fmt.Sprint("v", one("rotation", 3))
		default:
			if !has {
				continue
			}
		}
		there = append(there, name)
	}
	return func(label string) string {
		if len(there) == 0 || one(label, 2) == 0 {
			return ""
		}
		return " $" + rapid.SampledFrom(there).Draw(t, label)
	}
}

// mend makes all resources good, so that the client refuses nothing.
func (m *mesh) mend() {
	for name, content := range m.lines {
		m.lines[name] = strings.ReplaceAll(content, " bad", "")
	}
}

// routes draws a route configuration. In delta its virtual hosts are resources of their
// own, between which domains move.
func (m *mesh) routes(t *rapid.T, v protocol.Variant, name string, leads func(string) string, one func(string, int) int) {
	if v != protocol.Delta {
		m.lines["RDS "+name] = fmt.Sprint("whole", leads("route"), leads("route"))
		return
	}
	domains := rapid.Permutation([]string{"x", "y", "z"}).Draw(t, "domains")
	some := ""
	for h, domain := range domains {
		host := fmt.Sprintf("VHDS %s/h%d", name, h)
		if delete(m.lines, host); one("host", 3) > 0 {
			m.lines[host], some = domain+leads("host"), " vhds"
		}
	}
	m.lines["RDS "+name] = fmt.Sprint("v", one("options", 2), some)
}

// listens says whether a listener needs a route configuration.
func (m *mesh) listens(routes string) bool {
	for name, content := range m.lines {
		if strings.HasPrefix(name, "LDS ") && slices.Contains(strings.Fields(content), ">"+routes) {
			return true
		}
	}
	return false
}

// unlisten removes the listeners that need a route configuration.
func (m *mesh) unlisten(routes string) {
	maps.DeleteFunc(m.lines, func(line, content string) bool {
		return strings.HasPrefix(line, "LDS ") && slices.Contains(strings.Fields(content), ">"+routes)
	})
}

// tableGoes removes a route configuration with its virtual hosts.
func (m *mesh) tableGoes(name string) {
	maps.DeleteFunc(m.lines, func(line, _ string) bool {
		return line == "RDS "+name || strings.HasPrefix(line, "VHDS "+name+"/")
	})
}

// repair makes all traffic go to clusters that exist.
func (m *mesh) repair(leads func(string) string) {
	for _, line := range slices.Sorted(maps.Keys(m.lines)) {
		words := strings.Fields(m.lines[line])
		for i, word := range words {
			if cluster, ok := strings.CutPrefix(word, "@"); ok && m.lines["CDS "+cluster] == "" {
				words[i] = strings.TrimSpace(leads("instead"))
			}
		}
		m.lines[line] = strings.Join(words, " ") + " "
	}
}

func (m *mesh) sets(t *rapid.T) sets {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(m.lines)) {
		lines = append(lines, name+": "+m.lines[name])
	}
	return world(t, lines...)
}
