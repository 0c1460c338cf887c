// Package journal writes events into the history that change no object: issued certificates
// and refused attempts. One record carries many events, each caller waits for its own, and
// the events of a store that is away take bounded memory.
package journal
