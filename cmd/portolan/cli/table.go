package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// ColumnGap is the number of blanks between two columns.
const ColumnGap = 2

// WriteTable prints rows with aligned columns.
func WriteTable(out io.Writer, rows [][]string) error {
	w := tabwriter.NewWriter(out, 0, 0, ColumnGap, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, CellText(cell))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// CellText returns the text of a cell: "-" if it is empty.
func CellText(cell string) string {
	if cell == "" {
		return "-"
	}
	return cell
}

// Age returns how long ago something was, in the largest unit; empty for the zero time.
func Age(now, then time.Time) string {
	if then.IsZero() {
		return ""
	}
	return duration.ShortHumanDuration(max(now.Sub(then), 0))
}

// Ends returns how long something is good yet, in the largest unit; empty for the zero time.
func Ends(now, end time.Time) string {
	switch {
	case end.IsZero():
		return ""
	case !now.Before(end):
		return "ENDED"
	}
	return Age(end, now)
}

// shownItems is how many elements of a list a cell shows unless the table is wide.
const shownItems = 3

// FormatList formats the elements of a list: all of them, or the first ones and how many more there
// are.
func FormatList(list []string, all bool) string {
	if all || len(list) <= shownItems {
		return strings.Join(list, ",")
	}
	return fmt.Sprintf("%s +%d more", strings.Join(list[:shownItems], ","), len(list)-shownItems)
}

// Pairs formats a map like formatList, sorted by key.
func Pairs[V any](m map[string]V, all bool) string {
	list := make([]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, fmt.Sprintf("%s=%v", key, m[key]))
	}
	return FormatList(list, all)
}

// MapSlice returns f of every element.
func MapSlice[T, R any](list []T, f func(T) R) []R {
	out := make([]R, len(list))
	for i, v := range list {
		out[i] = f(v)
	}
	return out
}

// PrintSection prints a table below an empty line; nothing if it has only a header.
func (e *Environment) PrintSection(rows [][]string) error {
	if len(rows) < 2 {
		return nil
	}
	fmt.Fprintln(e.Stdout)
	return WriteTable(e.Stdout, rows)
}
