package envoy

import "math"

// weightSum is a sum of weights; a weight of 0 counts as 1.
type weightSum struct {
	sum uint64
	n   int
}

func (s weightSum) with(weight uint32) weightSum {
	return weightSum{s.sum + uint64(max(weight, 1)), s.n + 1}
}

func (s weightSum) plus(o weightSum) weightSum { return weightSum{s.sum + o.sum, s.n + o.n} }

// divisor scales the weights down. Envoy accepts a sum of 32 bits.
func (s weightSum) divisor() uint64 {
	if s.sum <= math.MaxUint32 {
		return 1
	}
	// Rounding a weight up to 1 adds less than one for each, hence the margin.
	return s.sum/(math.MaxUint32-uint64(s.n)) + 1
}

// divided is a weight divided, and never 0.
func divided(weight uint32, divisor uint64) uint32 { return uint32(max(uint64(weight)/divisor, 1)) }

// fitWeights returns weights without 0 and with a sum that Envoy accepts: if it is
// beyond 32 bits all are scaled down alike.
func fitWeights(weights []uint32) []uint32 {
	var sum weightSum
	for _, w := range weights {
		sum = sum.with(w)
	}
	out := make([]uint32, len(weights))
	for i, w := range weights {
		out[i] = divided(w, sum.divisor())
	}
	return out
}
