package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/text"
)

// ColumnGap is the number of blanks between two columns.
const ColumnGap = 2

// WriteTable prints rows with aligned columns, on a terminal in colours.
func WriteTable(out io.Writer, rows [][]string) error {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, ColumnGap, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, CellText(cell))
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(out, PaintTable(out, rows, text.String()))
	return err
}

// CellText returns the text of a cell: "-" if it is empty.
func CellText(cell string) string {
	if cell == "" {
		return "-"
	}
	return cell
}

// Age is text.Age.
func Age(now, then time.Time) string { return text.Age(now, then) }

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

// FormatList is text.List.
func FormatList(list []string, all bool) string { return text.List(list, all) }

// Pairs is text.Pairs.
func Pairs[V any](m map[string]V, all bool) string { return text.Pairs(m, all) }

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
