// Package reliability holds Portolan to its promises while what it stands on
// fails. A run starts real processes, has clients write, read, list, watch and
// follow xDS through every replica, does them harm by a plan that a seed makes,
// and records all that anybody saw. Afterwards the checkers judge the History.
//
// The truth of a run is told by a watch of the store that no fault touches:
// every event from the first revision on (Truth). Each checker is a pure function
// of the history; its faults are named after the invariant that they break, such
// as CAS-LIN or TXN-ALL:
//
//	linear.go    calls on one key are linearizable
//	outcome.go   what a call says of itself is true: AMBIG, DURABLE, NOOP, RYW
//	snapshot.go  lists and pushes are what the store was at their revision
//	watch.go     a watch is in order, whole, without repetition, and resumes
//	state.go     what a replica says of itself, and how it came through
//
// The tests have the rest: rig_test.go runs the processes, traffic_test.go and
// follow_test.go are the clients, faults_test.go and faultsmembers_test.go the
// harm, check_test.go and mutants_test.go show that the checkers bite: the first
// by one fault in a good history, the other by Portolan built with one mistake.
//
//	make reliability                          one seed, a minute
//	make reliability DURATION=90s SEEDS=20    the long form
//	make reliability SEED=7 DURATION=90s      once more
package reliability
