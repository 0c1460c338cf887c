package message

import "math"

// A WeightSum adds weights. A weight of 0 counts as 1.
type WeightSum struct {
	sum uint64
	n   int
}

// With returns the sum with one weight more.
func (s WeightSum) With(weight uint32) WeightSum {
	return WeightSum{s.sum + uint64(max(weight, 1)), s.n + 1}
}

// Plus returns the sum of both.
func (s WeightSum) Plus(o WeightSum) WeightSum { return WeightSum{s.sum + o.sum, s.n + o.n} }

// Divisor returns the divisor of weights, since Envoy accepts only a sum of 32 bits.
func (s WeightSum) Divisor() uint64 {
	if s.sum <= math.MaxUint32 {
		return 1
	}
	// Rounding up to 1 adds less than one per weight, hence the margin.
	return s.sum/(math.MaxUint32-uint64(s.n)) + 1
}

// Divided divides a weight, and is never 0.
func Divided(weight uint32, divisor uint64) uint32 { return uint32(max(uint64(weight)/divisor, 1)) }

// FitWeights returns weights that are not 0 and whose sum Envoy accepts. If the sum
// exceeds 32 bits, all are scaled down together.
// https://github.com/envoyproxy/envoy/pull/24986
func FitWeights(weights []uint32) []uint32 {
	var sum WeightSum
	for _, w := range weights {
		sum = sum.With(w)
	}
	out := make([]uint32, len(weights))
	for i, w := range weights {
		out[i] = Divided(w, sum.Divisor())
	}
	return out
}
