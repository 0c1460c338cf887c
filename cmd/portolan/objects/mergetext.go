package objects

import (
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

// The beginnings of the lines around what both sides have changed.
const (
	markMine   = "<<<<<<< "
	markBase   = "||||||| "
	markTheirs = "======="
	markEnd    = ">>>>>>> "
)

// marked says whether a text has marks of a merge in it.
func marked(text string) bool {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, markMine) || strings.HasPrefix(line, markBase) || strings.TrimRight(line, "\r\n") == markTheirs || strings.HasPrefix(line, markEnd) {
			return true
		}
	}
	return false
}

// sideEdits are the changes that lead from a text to one side of it, in order.
type sideEdits []udiff.Edit

// within returns the part of the text from start to end with the changes there.
func (s sideEdits) within(text string, start, end int) string {
	var out strings.Builder
	for _, e := range s {
		out.WriteString(text[start:e.Start] + e.New)
		start = e.End
	}
	out.WriteString(text[start:end])
	return out.String()
}

// mergeTexts merges two changed versions of a text line by line. Where both have changed the same
// lines differently, it has the three versions between marks, as diff3 writes them.
func mergeTexts(mine, base, theirs, mineName, baseName, theirsName string) string {
	ours, others := sideEdits(udiff.Lines(base, mine)), sideEdits(udiff.Lines(base, theirs))
	udiff.SortEdits(ours)
	udiff.SortEdits(others)
	var out strings.Builder
	at := 0
	for len(ours)+len(others) > 0 {
		start, end, m, t := nextRegion(ours, others)
		out.WriteString(base[at:start])
		at = end
		a, b := ours[:m].within(base, start, end), others[:t].within(base, start, end)
		ours, others = ours[m:], others[t:]
		switch {
		case t == 0, a == b:
			out.WriteString(a)
		case m == 0:
			out.WriteString(b)
		default:
			out.WriteString(markMine + mineName + "\n" + a + markBase + baseName + "\n" + base[start:end] + markTheirs + "\n" + b + markEnd + theirsName + "\n")
		}
	}
	out.WriteString(base[at:])
	return out.String()
}

// nextRegion returns the first part of the text that changes, and how many of the changes of each
// side are in it: those that overlap.
func nextRegion(ours, others sideEdits) (start, end, m, t int) {
	first := func() udiff.Edit {
		if len(others) == 0 || len(ours) > 0 && ours[0].Start <= others[0].Start {
			return ours[0]
		}
		return others[0]
	}()
	start, end = first.Start, first.End
	in := func(e udiff.Edit) bool {
		return e.Start < end || e.Start == end && (e.Start == e.End || start == end) // two insertions at one place overlap
	}
	for {
		switch {
		case m < len(ours) && in(ours[m]):
			end = max(end, ours[m].End)
			m++
		case t < len(others) && in(others[t]):
			end = max(end, others[t].End)
			t++
		default:
			return start, end, m, t
		}
	}
}
