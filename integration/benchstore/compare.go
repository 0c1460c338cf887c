package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// side measures one slice of one side of a ratio, and returns its figure.
type side func() (float64, error)

// compared is what the slices of two sides came to.
type compared struct {
	plain, portolan float64 // medians
	ratio           float64 // median of the ratios of the pairs
}

// compare has two sides take turns. The first pair warms up and is not counted.
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

// quantile is one of the values, which are not changed; that of none is zero.
func quantile[T cmp.Ordered](all []T, q float64) (value T) {
	if len(all) == 0 {
		return value
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// paced collects what single operations took on one side.
type paced struct{ all []time.Duration }

// slice makes a side of an operation that is done again and again for a while,
// whose figure is the median of what it took.
func (p *paced) slice(length time.Duration, once func() (time.Duration, error)) side {
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

// both is a median and the 99th percentile of all.
func (p *paced) both(median float64) string {
	return fmt.Sprintf("%s (p99 %s)", millis(median), millis(float64(quantile(p.all, 0.99))))
}

func millis(nanoseconds float64) string { return fmt.Sprintf("%.2f ms", nanoseconds/1e6) }

// timed makes an operation one whose time is taken.
func timed(do func() error) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		begin := time.Now()
		err := do()
		return time.Since(begin), err
	}
}
