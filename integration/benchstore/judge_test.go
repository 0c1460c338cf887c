package main

import (
	"strings"
	"testing"
)

// TestJudge: a line is judged by its ratio to the plain client of the same run. A line without
// a limit is only information.
func TestJudge(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		line    line
		missed  bool
		verdict string
	}{
		"at the limit":                 {line{ratio: 2, limit: limit{ratio: 2}}, false, "OK"},
		"beyond the limit":             {line{ratio: 2.01, limit: limit{ratio: 2}}, true, "MISSED"},
		"at least":                     {line{ratio: 0.7, limit: limit{0.7, true}}, false, "OK"},
		"less than at least":           {line{ratio: 0.69, limit: limit{0.7, true}}, true, "MISSED"},
		"without a limit":              {line{ratio: 9}, false, ""},
		"nothing was measured":         {line{limit: limit{0.7, true}}, true, "MISSED"},
		"slow, as the plain client is": {line{plain: "900.00 ms", portolan: "990.00 ms", ratio: 1.1, limit: limit{ratio: 1.5}}, false, "OK"},
	} {
		r := &report{}
		r.add(line{what: "another", ratio: 1, limit: limit{ratio: 2}})
		r.add(c.line)
		if r.missed() != c.missed {
			t.Errorf("%s: missed is %t", name, r.missed())
		}
		var table strings.Builder
		r.print(&table)
		rows := strings.Split(strings.TrimSpace(table.String()), "\n")
		cells := strings.Split(rows[len(rows)-1], "|")
		if got := strings.TrimSpace(cells[len(cells)-2]); got != c.verdict {
			t.Errorf("%s: the table says %q:\n%s", name, got, &table)
		}
	}
}

// TestComparePairs: the result is the median of the pairs' ratios. So a moment in which the
// machine is busy affects both sides alike, or only one pair.
func TestComparePairs(t *testing.T) {
	t.Parallel()
	machine := []float64{1, 1, 10, 3, 1, 50} // how slow it is; the first is the warm-up
	at := func(cost float64) side {
		pair := 0
		return func() (float64, error) { pair++; return cost * machine[pair-1], nil }
	}
	got, err := compare(len(machine)-1, at(2), at(3))
	if err != nil || got.ratio != 1.5 {
		t.Errorf("%+v, %v: want a ratio of 1.5", got, err)
	}
}
