package process

import (
	"fmt"
	"strings"
)

// A status must fit into one value of the coordination store, whatever user code says in its
// errors and however many tasks are in trouble: one that cannot be written looks as if the
// topology master had died. JSON may make six bytes of one.
const (
	textMax  = 4 << 10
	textsMax = 96 << 10
	someMax  = 10
)

// texts bounds the texts of one status.
type texts struct{ used int }

// clip returns a text, or its beginning if it is too long.
func (t *texts) clip(text string) string {
	most := min(textMax, textsMax-t.used)
	if len(text) > most {
		text = fmt.Sprintf("%s… (%d bytes; the log has all)", strings.ToValidUTF8(text[:most], ""), len(text))
	}
	t.used += min(len(text), most)
	return text
}

// some returns the first of many texts, and says how many there are.
func (t *texts) some(all []string) []string {
	var first []string
	for _, text := range all[:min(len(all), someMax)] {
		first = append(first, t.clip(text))
	}
	if more := len(all) - len(first); more > 0 {
		first = append(first, fmt.Sprintf("and %d more", more))
	}
	return first
}
