package longtest

import (
	"flag"
	"fmt"
	"os"
	"strconv"
)

// HistoriesVariable is the environment variable that asks for many histories: its value is
// then "many".
const HistoriesVariable = "PORTOLAN_HISTORIES"

// Histories returns how many histories, rounds or objects a test tries: few, or many if
// HistoriesVariable asks for them.
func Histories(few, many int) int {
	switch value := os.Getenv(HistoriesVariable); value {
	case "":
		return few
	case "many":
		return many
	default:
		panic(fmt.Sprintf("%s=%q: the value is \"many\", or the variable is not set", HistoriesVariable, value))
	}
}

// Checks sets how many histories rapid tries for each property of a package, unless the
// flag -rapid.checks is given. They are the same in each run, unless Variable is set.
// TestMain calls it.
func Checks(few, many int) {
	set := func(name string, value int) {
		if err := flag.Set(name, strconv.Itoa(value)); err != nil {
			panic("longtest: the package does not use rapid: " + err.Error())
		}
	}
	set("rapid.checks", Histories(few, many))
	if os.Getenv(Variable) == "" {
		set("rapid.seed", 1)
	}
}
