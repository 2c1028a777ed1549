package main

import (
	"fmt"
	"strings"

	"github.com/isobar-io/isobar/internal/kjv"
)

// sentences has 55 words, 44 of them distinct: a small table that stays in cache,
// so that what is measured is the way there.
const sentences = `the river ran past an old mill and into the sea
a small boat departed the harbour before dawn with bread and salt
every morning the baker lit his oven and whistled aloud
when the rain came a dog and a cat slept under one green tree
no wind blew over the old mountains today
`

// textOf returns the lines that a word count reads again and again. Their letters are
// lower case, so that a word is a substring of its line and costs no allocation.
func textOf(workload string) ([]string, error) {
	var text string
	switch workload {
	case "fastwordcount":
		text = sentences
	case "wordcount":
		text = strings.ToLower(kjv.Text)
	default:
		return nil, fmt.Errorf("workload %q has no text", workload)
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n"), nil
}

func isLetter(c byte) bool { return c-'a' < 26 }

// nextWord returns where the first word of a line at or after a position begins and
// ends; from is len(line) if there is none. Words are runs of letters.
func nextWord(line string, at int) (from, to int) {
	for at < len(line) && !isLetter(line[at]) {
		at++
	}
	from = at
	for at < len(line) && isLetter(line[at]) {
		at++
	}
	return from, at
}
