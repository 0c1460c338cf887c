// Package processtest runs programs for the integration tests, and stands between them. A
// Process does not outlive its test. A Link forwards what two processes send each other until a
// test tells it to cut, hold or swallow it.
//
//	p := processtest.Start(t, processtest.Options{Name: "portolan", Path: binary, Args: args})
//	p.Pause()
//	err := p.Terminate(t, 10*time.Second)
package processtest
