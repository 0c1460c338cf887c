package envoy

import "math"

// In a weightSum a weight of 0 counts as 1.
type weightSum struct {
	sum uint64
	n   int
}

func (s weightSum) with(weight uint32) weightSum {
	return weightSum{s.sum + uint64(max(weight, 1)), s.n + 1}
}

func (s weightSum) plus(o weightSum) weightSum { return weightSum{s.sum + o.sum, s.n + o.n} }

// divisor returns the divisor of weights, since Envoy accepts only a sum of 32 bits.
func (s weightSum) divisor() uint64 {
	if s.sum <= math.MaxUint32 {
		return 1
	}
	// Rounding up to 1 adds less than one per weight, hence the margin.
	return s.sum/(math.MaxUint32-uint64(s.n)) + 1
}

// divided divides a weight, and is never 0.
func divided(weight uint32, divisor uint64) uint32 { return uint32(max(uint64(weight)/divisor, 1)) }

// fitWeights returns weights that are not 0 and whose sum Envoy accepts. If the sum
// exceeds 32 bits, all are scaled down together.
// https://github.com/envoyproxy/envoy/pull/24986
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
