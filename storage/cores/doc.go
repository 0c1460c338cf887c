// Package cores divides the work on many values among all cores.
package cores
