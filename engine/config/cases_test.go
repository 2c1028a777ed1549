package config

import (
	"strings"
	"testing"
)

// Case: a wrong value was found only by the process that used it, which died of it,
// and the message did not name the key; a misspelt key was not found at all. What a
// component asks for must be checked as strictly as what stands in a file.
func TestWrongConfigurationOfAComponentNamesItAndTheKey(t *testing.T) {
	for key, c := range map[string]struct {
		value any
		want  string
	}{
		"topology.tasks":                {"2", `topology.tasks is the text "2", must be a whole number`},
		"topology.tick.tuple.freq.secs": {-1, "topology.tick.tuple.freq.secs is -1, must be"},
		"topology.state.cach.mb":        {10, "did you mean topology.state.cache.mb?"},
		"topology.debug":                {1, "topology.debug is 1, must be true or false"},
		"topology.poison.max.attempts":  {2.0, "topology.poison.max.attempts is"},
	} {
		_, err := OfComponent("count", map[string]any{key: c.value, "user.mine": "anything"})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `"count"`) || strings.Contains(err.Error(), "user.mine") {
			t.Errorf("%s: error %v, want one with %q and the component", key, err, c.want)
		}
	}
}
