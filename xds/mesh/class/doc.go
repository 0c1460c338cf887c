// Package class has what proxies have in common that should have the same resources: their
// Class, and its Shape, which generators may read without recording it.
package class
