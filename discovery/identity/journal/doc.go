// Package journal writes events that change no object into the history: issued certificates
// and refused attempts. One record holds many events, and each caller waits only for its own.
// While the store is away, events take bounded memory.
package journal
