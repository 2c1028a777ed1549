package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// Command is what a user asks for that changes the status of a topology.
type Command string

// The commands.
const (
	CommandKill       Command = "kill"
	CommandActivate   Command = "activate"
	CommandDeactivate Command = "deactivate"
	CommandRebalance  Command = "rebalance"
	CommandUpdate     Command = "update"
)

// transitions are all that a command may do; what is not listed is refused. A command that
// leads to the status there is already changes nothing.
var transitions = map[Command]map[Status]Status{
	CommandKill: {
		Active: Killed, Inactive: Killed, Rebalancing: Killed, Updating: Killed,
		Finished: Killed, Failed: Killed,
		Killed: Killed, // with another deadline
	},
	CommandActivate:   {Active: Active, Inactive: Active},
	CommandDeactivate: {Active: Inactive, Inactive: Inactive},
	CommandRebalance:  {Active: Rebalancing, Inactive: Rebalancing},
	CommandUpdate:     {Active: Updating, Inactive: Updating},
}

// Transition returns the status that a command leads to from another one. An error says
// why it does not, and what would.
func Transition(name string, from Status, command Command) (Status, error) {
	if to, ok := transitions[command][from]; ok {
		return to, nil
	}
	var why string
	switch from {
	case Killed:
		why = "it is on its way out, and its name will be free then"
	case Rebalancing, Updating:
		why = "wait until that is done, or kill it"
	case Finished:
		why = "it has processed all input; kill it to free its name"
	case Failed:
		why = "kill it and submit it again with --from latest"
	default:
		var from []string
		for s := range transitions[command] {
			from = append(from, string(s))
		}
		slices.Sort(from)
		why = "it must be " + strings.Join(from, " or ")
	}
	return from, fmt.Errorf("cannot %s topology %s, it is %s: %s", command, name, from, why)
}

// Runs reports whether processes of a topology are wanted in this status.
func (s Status) Runs() bool {
	return s == Active || s == Inactive || s == Rebalancing || s == Updating || s == Killed
}
