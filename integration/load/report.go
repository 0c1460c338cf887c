package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// unit is the unit of a figure.
type unit int

const (
	seconds unit = iota
	bytes
	share
	count
)

func (u unit) text(v float64) string {
	switch u {
	case seconds:
		return time.Duration(v * float64(time.Second)).Round(digits(v)).String()
	case bytes:
		return size(v)
	case share:
		return fmt.Sprintf("%.2f %%", 100*v)
	}
	return fmt.Sprintf("%.4g", v)
}

// digits returns the precision to which a time is rounded.
func digits(seconds float64) time.Duration {
	switch {
	case seconds >= 1:
		return 10 * time.Millisecond
	case seconds >= 0.1:
		return time.Millisecond
	case seconds >= 0.01:
		return 100 * time.Microsecond
	}
	return 10 * time.Microsecond
}

func size(v float64) string {
	switch {
	case v >= 1<<30:
		return fmt.Sprintf("%.2f GiB", v/(1<<30))
	case v >= 1<<20:
		return fmt.Sprintf("%.1f MiB", v/(1<<20))
	case v >= 1<<10:
		return fmt.Sprintf("%.1f KiB", v/(1<<10))
	}
	return fmt.Sprintf("%.0f B", v)
}

// figure is one measured value.
type figure struct {
	name  string
	unit  unit
	value float64
}

// results are the results of a cell.
type results struct {
	cell    cell
	figures []figure
	floors  map[string]float64 // the floor server's values, by figure
	notes   []string
	report  *report
}

func (r *results) add(name string, u unit, v float64) {
	r.figures = append(r.figures, figure{name, u, v})
}

func (r *results) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// istio returns Istio's figures for a cell.
func (r *results) istio(name string) istio { return istioAt[name] }

// figureOf returns a figure of another cell.
func (r *results) figureOf(cell, name string) (float64, bool) {
	for _, other := range r.report.cells {
		for _, f := range other.figures {
			if other.cell.name == cell && f.name == name {
				return f.value, true
			}
		}
	}
	return 0, false
}

// withoutSetting returns the name of the plain cell that a cell is a variation of. Istio's
// figures are for the plain ones.
func withoutSetting(name string) string {
	plain, _, _ := strings.Cut(name, "/")
	return plain
}

// istioFigure returns Istio's value of a figure, 0 if it was not measured.
func (r *results) istioFigure(name string) float64 {
	were := r.istio(cmp.Or(exactly(r.cell.name), withoutSetting(r.cell.name)))
	switch name {
	case syncTime:
		return were.time.Seconds()
	case syncCPU:
		return were.cpu.Seconds()
	case syncMemory:
		return were.memory
	case p99("endpoint"):
		return were.endpoint.Seconds()
	case changeCPU("endpoint"):
		return were.endpointCPU.Seconds()
	case p99("routes"):
		return were.routes.Seconds()
	case changeCPU("routes"):
		return were.routesCPU.Seconds()
	case bytesOf("routes"):
		return float64(were.routesBytes)
	}
	return 0
}

// exactly returns the name of the cell for which Istio has figures of its own.
func exactly(name string) string {
	if _, own := istioAt[name]; own {
		return name
	}
	return ""
}

// report has the results of all cells.
type report struct{ cells []*results }

// missed lists the figures that miss their targets, and what these derive from.
func (r *report) missed() []string {
	var out []string
	for _, c := range r.cells {
		targets := c.targets()
		for _, f := range c.figures {
			if t, has := targets[f.name]; has && f.value > t.most {
				out = append(out, fmt.Sprintf("%s %s is %s: %s", c.cell.name, f.name, f.unit.text(f.value), t.goal(f.unit)))
			}
		}
	}
	return out
}

// goal returns the target of a figure as text.
func (t target) goal(u unit) string {
	out := "<= " + u.text(t.most)
	if t.why != "" {
		out += " (" + t.why + ")"
	}
	return out
}

// targets returns the targets of a cell by figure.
func (r *results) targets() map[string]target {
	out := map[string]target{}
	if r.cell.targets == nil {
		return out
	}
	for _, t := range r.cell.targets(r) {
		out[t.figure] = t
	}
	return out
}

const row = "| %-19s | %-34s | %-10s | %-10s | %-18s | %-26s | %-6s |\n"

// print writes the table in Markdown. It can print a cell as soon as that is measured.
func (r *results) print(w io.Writer) {
	targets := r.targets()
	slices.SortStableFunc(r.figures, func(a, b figure) int { return cmp.Compare(phase(a.name), phase(b.name)) })
	for _, f := range r.figures {
		was, floor, goal, verdict := "", "", "", ""
		if v := r.istioFigure(f.name); v > 0 {
			was = f.unit.text(v)
		}
		if v, measured := r.floors[f.name]; measured {
			floor = f.unit.text(v)
			if v > 0 {
				floor += fmt.Sprintf(" (%.1fx)", f.value/v)
			}
		}
		if t, has := targets[f.name]; has {
			goal, verdict = t.goal(f.unit), "OK"
			if f.value > t.most {
				verdict = "MISSED"
			}
		}
		fmt.Fprintf(w, row, r.cell.name, f.name, was, f.unit.text(f.value), floor, goal, verdict)
	}
	for _, note := range r.notes {
		fmt.Fprintf(w, "  %s: %s\n", r.cell.name, note)
	}
}

// phase orders the figures of a first sync before those of changes.
func phase(name string) int {
	if strings.HasPrefix(name, "first sync") {
		return 0
	}
	return 1
}

func printHeader(w io.Writer) {
	fmt.Fprintf(w, "%d cores, %s, load %s\n\n", runtime.NumCPU(), runtime.Version(), machineLoad())
	fmt.Fprintf(w, row, "services:proxies", "what", "Istio", "Portolan", "floor (ratio)", "target", "")
	fmt.Fprintln(w, "|"+strings.Repeat("---|", 7))
}

// machineLoad returns the load of the machine, if the system reports it.
func machineLoad() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
