package remote

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/task"
	"github.com/isobar-io/isobar/tuple"
)

// told is a generation on three workers.
func told() (c *Crew, g *crewTasks, members []*member) {
	c = &Crew{cfg: CrewConfig{Changed: func() {}}, live: map[tuple.Generation]*crewTasks{}}
	g = &crewTasks{
		crew: c, number: 3, ended: make(chan struct{}), stopped: make(chan struct{}), env: &task.Env{Post: func(checkpoint.Event) {}},
		on: map[*member]bool{}, where: map[checkpoint.TaskID]*member{}, unlinked: map[*member][]string{},
	}
	for i, name := range []string{"a", "b", "c"} {
		m := &member{conn: newConn(nil, time.Minute), hello: hello{Worker: name}}
		g.on[m], g.where[checkpoint.TaskID(i+1)] = true, m
		members = append(members, m)
	}
	c.live[g.number] = g
	return c, g, members
}

func TestUnlinkedPairsAreThoseOfWhatIsStarting(t *testing.T) {
	ab, ac, bc := [2]string{"a", "b"}, [2]string{"a", "c"}, [2]string{"b", "c"}
	c, g, m := told()
	tell := func(m *member, others []string, want ...[2]string) {
		t.Helper()
		if err := g.told(m, message{Kind: kindUnlinked, Unlinked: others}); err != nil {
			t.Fatal(err)
		}
		if got := c.Unlinked(); !slices.Equal(got, want) {
			t.Errorf("unlinked are %q, want %q", got, want)
		}
	}
	tell(m[1], []string{"a"}, ab)
	tell(m[0], []string{"b"}, ab) // the other end says the same
	tell(m[2], []string{"b", "a"}, ab, ac, bc)
	tell(m[1], nil, ab, ac, bc)
	tell(m[0], nil, ac, bc)
	g.lost(m[1])
	tell(m[1], []string{"a"}, ac) // it is not there any more
	g.Stop()
	tell(m[2], []string{"a"}) // the next generation may do better
}

// What a worker tells is bounded by the workers that there are, and names no others.
func TestUnlinkedStrangersAreRefused(t *testing.T) {
	for _, others := range [][]string{{"a"}, {"d"}, {""}, {"b", "x"}, {"b", "c", "b", "c"}, make([]string, 1000)} {
		c, g, m := told()
		if err := g.told(m[0], message{Kind: kindUnlinked, Unlinked: others}); err == nil || !strings.Contains(err.Error(), "worker a does not reach") {
			t.Errorf("%.100q: %v, want it refused", others, err)
		}
		if got := c.Unlinked(); len(got) > 0 {
			t.Errorf("%.100q: unlinked are %q", others, got)
		}
	}
}
