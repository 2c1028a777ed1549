package cluster

import (
	"fmt"
	"strings"
	"testing"
)

// The whole table: what each command does in each status, - where it is refused.
func TestTransitions(t *testing.T) {
	commands := []Command{CommandKill, CommandActivate, CommandDeactivate, CommandRebalance, CommandUpdate}
	table := `
ACTIVE       KILLED ACTIVE INACTIVE REBALANCING UPDATING
INACTIVE     KILLED ACTIVE INACTIVE REBALANCING UPDATING
KILLED       KILLED -      -        -           -
REBALANCING  KILLED -      -        -           -
UPDATING     KILLED -      -        -           -
FINISHED     KILLED -      -        -           -
FAILED       KILLED -      -        -           -
ELSE         -      -      -        -           -
`
	for line := range strings.Lines(strings.TrimSpace(table)) {
		words := strings.Fields(line)
		from := Status(words[0])
		for i, command := range commands {
			to, err := Transition("wc", from, command)
			want := words[i+1]
			if want == "-" {
				text := fmt.Sprintf("cannot %s topology wc, it is %s: ", command, from)
				if err == nil || !strings.HasPrefix(err.Error(), text) || len(err.Error()) == len(text) || to != from {
					t.Errorf("%s in %s leads to %s, error %v", command, from, to, err)
				}
				continue
			}
			if err != nil || string(to) != want {
				t.Errorf("%s in %s leads to %s, error %v, want %s", command, from, to, err, want)
			}
		}
	}
}
