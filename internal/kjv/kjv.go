// Package kjv holds the text that the word count example and the benchmark count:
// the King James Bible, one verse a line. The text is in the public domain.
package kjv

import _ "embed"

// Text is the whole text: 31,102 lines, each ended by a newline.
//
//go:embed kjv.txt
var Text string
