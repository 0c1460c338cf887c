// Package class defines what proxies with the same resources have in common: their Class.
// Its Shape is the part that generators may read without recording it.
package class
