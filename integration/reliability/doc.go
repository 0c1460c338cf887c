// Package reliability checks that Portolan keeps its promises while what it depends on fails. A
// run starts real processes. Clients write, read, list, watch and follow xDS through every
// replica. A plan derived from a seed does harm, and the run records everything that anybody
// saw. Afterwards the checkers judge the History.
//
// The truth of a run comes from a watch of the store that no fault affects: every event from
// the first revision on (Truth). Each checker is a pure function of the history. It names
// violations after the broken invariant, such as CAS-LIN or TXN-ALL:
//
//	linear.go    calls on one key are linearizable
//	outcome.go   what a call reports is true: AMBIG, DURABLE, NOOP, RYW
//	snapshot.go  lists and pushes equal the store at their revision
//	watch.go     a watch is in order, complete, without repetition, and resumes
//	state.go     what a replica reports of itself, and how it survives
//
// The tests have the rest: rig_test.go runs the processes, traffic_test.go and follow_test.go
// are the clients, faults_test.go and faultsmembers_test.go do harm. check_test.go and
// mutants_test.go show that the checkers work: the first with one fault in a good history, the
// other with builds of Portolan that each have one mistake.
//
//	make reliability                          one seed, a minute
//	make reliability DURATION=90s SEEDS=20    the long form
//	make reliability SEED=7 DURATION=90s      the same run again
package reliability
