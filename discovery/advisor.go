package discovery

import (
	"iter"

	"github.com/portolan-mesh/portolan/storage/config"
)

// Advice is what a registry finds odd about an object that it reads: beside others of
// the registry, not by itself.
type Advice struct {
	// Code is the code of a verdict, see the table in package verdict.
	Code string
	// Field is the path of the field, Message says what it causes, Remedy what to do.
	Field, Message, Remedy string
	// Other is the other object concerned, the zero Key for none.
	Other config.Key
}

// Advisor is a Fork that gives advice on the objects that its registry reads.
type Advisor interface {
	// Advise returns what is odd about an object as the fork has it, nothing for one
	// that the registry does not read. The cost follows what the object touches.
	Advise(key config.Key) []Advice
	// AdvisedAnew iterates over objects on which an earlier fork, nil for none, may
	// have given other advice, some maybe twice. Objects that changed themselves may be
	// left out.
	AdvisedAnew(from Fork) iter.Seq[config.Key]
}
