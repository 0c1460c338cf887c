package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// side measures one time slice of one side of a ratio, and returns the figure.
type side func() (float64, error)

// compared is the result of two sides.
type compared struct {
	plain, portolan float64 // medians
	ratio           float64 // median of the ratios of the pairs
}

// compare measures slices of two sides in turns. The first pair warms up and is not counted.
func compare(pairs int, plain, portolan side) (compared, error) {
	var plains, portolans, ratios []float64
	for i := range pairs + 1 {
		var of [2]float64
		order := []int{0, 1}
		if i%2 == 1 {
			order = []int{1, 0}
		}
		for _, which := range order {
			var err error
			if of[which], err = []side{plain, portolan}[which](); err != nil {
				return compared{}, err
			}
		}
		if i > 0 {
			plains, portolans, ratios = append(plains, of[0]), append(portolans, of[1]), append(ratios, of[1]/of[0])
		}
	}
	return compared{median(plains), median(portolans), median(ratios)}, nil
}

func median[T cmp.Ordered](all []T) T { return quantile(all, 0.5) }

// quantile returns a quantile of the values, zero if there are none. It does not modify them.
func quantile[T cmp.Ordered](all []T, q float64) (value T) {
	if len(all) == 0 {
		return value
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// durations collects the durations of single operations on one side.
type durations struct{ all []time.Duration }

// slice returns a side that repeats an operation for a time. Its figure is the median duration.
func (p *durations) slice(length time.Duration, once func() (time.Duration, error)) side {
	return func() (float64, error) {
		var took []time.Duration
		for begin := time.Now(); time.Since(begin) < length; {
			one, err := once()
			if err != nil {
				return 0, err
			}
			took = append(took, one)
		}
		p.all = append(p.all, took...)
		return float64(median(took)), nil
	}
}

// both returns a given median and the 99th percentile of all durations.
func (p *durations) both(median float64) string {
	return fmt.Sprintf("%s (p99 %s)", millis(median), millis(float64(quantile(p.all, 0.99))))
}

func millis(nanoseconds float64) string { return fmt.Sprintf("%.2f ms", nanoseconds/1e6) }

// timed wraps an operation to return its duration.
func timed(do func() error) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		begin := time.Now()
		err := do()
		return time.Since(begin), err
	}
}
