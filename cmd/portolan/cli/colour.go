package cli

import (
	"io"
	"os"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/storage/status"
)

// style is how a text looks on a terminal: the parameter of its escape sequence.
type style string

const (
	plain   style = ""
	bad     style = "31" // red
	good    style = "32" // green
	odd     style = "33" // yellow
	aside   style = "36" // cyan
	heading style = "1"  // bold
)

// colours says whether an output shows colours: it is a terminal that has some, and the user wants
// them (see no-color.org). Whatever else reads the output gets no escape sequence.
func colours(out io.Writer) bool {
	return isTerminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

func (s style) paint(text string) string {
	if s == plain || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// on paints a text if the output shows colours.
func (s style) on(out io.Writer, text string) string {
	if !colours(out) {
		return text
	}
	return s.paint(text)
}

// words are the styles of what cells of tables begin with. Names of objects have no capitals and do
// not begin with a blank, so none of these is one.
var words = map[string]style{
	"! ":        bad,
	"ENDED":     bad,
	"EXPIRED":   bad,
	"REJECTED":  bad,
	"UNHEALTHY": bad,
	"USED UP":   bad,
	"DISABLED":  odd,
	"DRAINING":  odd,
	"LEFT OUT":  odd,
	"NOT SENT":  odd,
	"STALE":     odd,
	"HEALTHY":   good,
	"SYNCED":    good,

	"  rejected": bad,
	"  refused":  bad,
	"  behind":   odd,
	"  offline":  odd,
	"  waiting":  odd,
}

// badIfTrue are the conditions that exist because something is wrong.
var badIfTrue = []string{status.Rejected, status.Conflicted, status.PartlyServed, status.Stalled}

// styleOf returns the style of a cell of a row, by its column and its words. The first row may be a
// header, whose words in capitals are no states.
func styleOf(rows [][]string, n, column int) style {
	header, row, cell, of := rows[0], rows[n], rows[n][column], ""
	if column < len(header) {
		of = header[column]
	}
	switch {
	case n > 0 && of == "SEVERITY":
		return map[string]style{"error": bad, "warning": odd}[cell]
	case n > 0 && of == "STATUS" && header[0] == "CONDITION":
		return styleOfCondition(row[0], cell)
	}
	for word, s := range words {
		if rest, ok := strings.CutPrefix(cell, word); ok && (rest == "" || rest[0] == ' ' || word == "! ") && (n > 0 || word[0] < 'A') {
			return s
		}
	}
	return plain
}

func styleOfCondition(condition, value string) style {
	switch {
	case condition == status.Reconciling || value == status.Unknown:
		return odd
	case (value == status.True) == slices.Contains(badIfTrue, condition):
		return bad
	}
	return good
}

// PaintTable adds colours to the text of a table if the output shows them. The text has a line for
// each row, with the cells in order; it is laid out before, so that columns are as wide as what is
// seen.
func PaintTable(out io.Writer, rows [][]string, text string) string {
	if !colours(out) {
		return text
	}
	return paintTable(rows, text)
}

func paintTable(rows [][]string, text string) string {
	lines := strings.SplitAfter(text, "\n")
	if len(lines) != len(rows)+1 { // a cell has several lines
		return text
	}
	for n, row := range rows {
		line, done := lines[n], ""
		for i := range row {
			cell := CellText(row[i])
			before, after, found := strings.Cut(line, cell)
			if !found {
				break
			}
			done, line = done+before+styleOf(rows, n, i).paint(cell), after
		}
		lines[n] = done + line
	}
	return strings.Join(lines, "")
}

// WriteDiff prints a unified diff: what is removed in red, what is added in green.
func WriteDiff(out io.Writer, text string) error {
	if colours(out) {
		text = paintDiff(text)
	}
	_, err := io.WriteString(out, text)
	return err
}

func paintDiff(text string) string {
	var painted strings.Builder
	for line := range strings.Lines(text) {
		body, end := strings.TrimSuffix(line, "\n"), ""
		if body != line {
			end = "\n"
		}
		painted.WriteString(styleOfDiff(body).paint(body) + end)
	}
	return painted.String()
}

func styleOfDiff(line string) style {
	for _, of := range []struct {
		prefix string
		style  style
	}{{"--- ", heading}, {"+++ ", heading}, {"@@", aside}, {"-", bad}, {"+", good}} {
		if strings.HasPrefix(line, of.prefix) {
			return of.style
		}
	}
	return plain
}
