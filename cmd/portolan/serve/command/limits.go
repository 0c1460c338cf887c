package command

import (
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
)

// memoryFlags bounds the memory that the server uses for its clients.
type memoryFlags struct {
	stream, streams, history, watch resource.QuantityValue

	maxWatches     int
	maxConnections int64
}

// minMemory is the least value of each budget.
const minMemory = 1 << 20

func (o *memoryFlags) register(f *pflag.FlagSet) {
	for _, budget := range o.budgets() {
		budget.size.Quantity = *resource.NewQuantity(budget.standard, resource.BinarySI)
		f.Var(budget.size, budget.flag, budget.usage+"; at least 1Mi")
	}
	f.IntVar(&o.maxWatches, "max-watches", 4000, "how many watches of the config API may be open; more are refused with 429")
	f.Int64Var(&o.maxConnections, "max-api-connections", serve.DefaultMaxAPIConnections, "how many connections to the config API may be open; more are closed at once")
}

// memoryBudget is a flag that bounds memory.
type memoryBudget struct {
	flag, usage string
	standard    int64
	size        *resource.QuantityValue
}

func (o *memoryFlags) budgets() []memoryBudget {
	return []memoryBudget{
		{"stream-memory", "memory for what one stream of a proxy asks for: its names and the request that is being read. A stream that asks for more is ended", 64 << 20, &o.stream},
		{"streams-memory", "memory for what all streams ask for, equal names counted once. Beyond it the streams that ask for most are ended", 1 << 30, &o.streams},
		{"history-memory", "memory for old versions of objects, from which watches and lists go on; beyond it the oldest are forgotten", cache.DefaultHistoryMemory, &o.history},
		{"watch-memory", "memory for events that watches of the config API are being sent; beyond it the slowest watches are ended", 64 << 20, &o.watch},
	}
}

func (o *memoryFlags) validate(add addFault) {
	for _, budget := range o.budgets() {
		if budget.size.Value() < minMemory {
			add(budget.flag, "%s is less than 1Mi", budget.size.String())
		}
	}
	if o.maxWatches < 1 {
		add("max-watches", "%d is less than 1", o.maxWatches)
	}
	if o.maxConnections < 1 {
		add("max-api-connections", "%d is less than 1", o.maxConnections)
	}
	if o.streams.Value() < o.stream.Value() {
		add("streams-memory", "%s is less than the --stream-memory of one, %s", o.streams.String(), o.stream.String())
	}
}

// apply requires valid flags.
func (o *memoryFlags) apply(to *serve.Options) {
	to.StreamMemory, to.StreamsMemory = o.stream.Value(), o.streams.Value()
	to.HistoryMemory, to.WatchMemory = o.history.Value(), o.watch.Value()
	to.MaxWatches, to.MaxAPIConnections = o.maxWatches, o.maxConnections
}
