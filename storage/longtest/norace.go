//go:build !race

package longtest

const raced = false
