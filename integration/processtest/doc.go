// Package processtest runs programs for the tests of the real things, and stands
// between them. A Process does not outlive its test; a Link passes on what two
// processes say to each other until it is told to cut, hold or swallow it.
//
//	p := processtest.Start(t, processtest.Options{Name: "portolan", Path: binary, Args: args})
//	p.Pause()
//	err := p.Terminate(t, 10*time.Second)
package processtest
