// Package meter measures another process from outside: the processor time that
// it has used, and its memory.
package meter
