package discovery

import (
	"iter"

	"github.com/portolan-mesh/portolan/storage/config"
)

// Advice describes something odd about an object in combination with other objects of its
// registry.
type Advice struct {
	// Code is the code of a verdict, see the table in package verdict.
	Code string
	// Field is the path of the field, Message says what the oddity causes, Remedy what to do.
	Field, Message, Remedy string
	// Other is the other object concerned, the zero Key if there is none.
	Other config.Key
	// Unselected says that the advice holds only while no other registry selects the workload.
	Unselected bool
}

// Advisor is a Fork that gives advice on the objects that its registry reads.
type Advisor interface {
	// Advise returns what is odd about an object in the state of the fork, nothing for an
	// object that the registry does not read. The cost follows what the object touches.
	Advise(key config.Key) []Advice
	// AdvisedAnew iterates over the objects for which Advise may answer differently than on an
	// earlier fork; from may be nil. It may yield an object twice, and may leave out objects
	// that changed themselves.
	AdvisedAnew(from Fork) iter.Seq[config.Key]
}
