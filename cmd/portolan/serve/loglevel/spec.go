package loglevel

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"

	"github.com/portolan-mesh/portolan/cmd/portolan/help"
	"github.com/portolan-mesh/portolan/storage/errlist"
	"github.com/portolan-mesh/portolan/storage/spelling"
)

// A Spec says which components have which level. The zero value says nothing.
type Spec map[Component]slog.Level

// Words are the levels.
var Words = []string{"debug", "info", "warn", "error"}

// Parse reads levels as LEVEL, for all components, and COMPONENT=LEVEL, for one, which goes before it,
// with commas between them: info,xds=debug. The level debug for all is info for etcd, which has some
// lines for each transaction: who wants them names it. The error has all faults.
func Parse(text string) (Spec, error) {
	var faults *multierror.Error
	fault := func(format string, args ...any) { faults = multierror.Append(faults, fmt.Errorf(format, args...)) }
	out, all := Spec{}, ""
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		name, word, one := strings.Cut(item, "=")
		if !one {
			name, word = "", item
		}
		component := Component(name)
		_, twice := out[component]
		level, err := parseLevel(word)
		switch {
		case one && !slices.Contains(Components(), component):
			fault("%q: %s", item, unknown(name))
		case err != nil:
			fault("%q: %w", item, err)
		case one && twice:
			fault("%q: %s has a level before that: leave one of them out", item, name)
		case one:
			out[component] = level
		case all != "":
			fault("%q: %s is for all components before that: leave one of them out", item, all)
		default:
			all = word
		}
	}
	if all != "" {
		level, _ := parseLevel(all) // it was read above
		for _, c := range Components() {
			if _, own := out[c]; own {
				continue
			}
			out[c] = level
			if c == Etcd {
				out[c] = max(level, slog.LevelInfo)
			}
		}
	}
	if faults != nil {
		faults.ErrorFormat = errlist.Lines
		return nil, faults
	}
	return out, nil
}

func parseLevel(word string) (slog.Level, error) {
	i := slices.Index(Words, strings.ToLower(word))
	if i < 0 {
		return 0, fmt.Errorf("a level is %s", help.Alternatives(Words))
	}
	return slog.LevelDebug + 4*slog.Level(i), nil
}

// Word returns a level as Parse reads it.
func Word(l slog.Level) string { return strings.ToLower(l.String()) }

// unknown says which components there are.
func unknown(name string) string {
	var names, meant []string
	for _, c := range Components() {
		names = append(names, string(c))
		if spelling.Similar(name, string(c)) {
			meant = append(meant, string(c))
		}
	}
	return fmt.Sprintf("there is no component %q%s: there are %s", name, strings.TrimSuffix(help.DidYouMean(meant), "?"), strings.Join(names, ", "))
}

// String returns the levels as Parse reads them, in the order of the components.
func (s Spec) String() string {
	var out []string
	for _, c := range Components() {
		if level, ok := s[c]; ok {
			out = append(out, string(c)+"="+Word(level))
		}
	}
	return strings.Join(out, ",")
}
