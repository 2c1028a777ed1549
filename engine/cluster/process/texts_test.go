package process

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTextsAreBounded(t *testing.T) {
	var one texts
	if got := one.clip("short"); got != "short" {
		t.Errorf("a short text is told as %q", got)
	}
	long := strings.Repeat("ü", textMax)
	got := one.clip("x" + long) // a letter is cut in two
	if !strings.HasPrefix(got, "xüü") || !utf8.ValidString(got) || !strings.HasSuffix(got, "ü… (8193 bytes; the log has all)") || len(got) > textMax+100 {
		t.Errorf("a long text is told with %d bytes: %q", len(got), got[len(got)-50:])
	}
	var all texts
	total := 0
	for range 10_000 {
		total += len(all.clip(long))
	}
	if total > textsMax+10_000*100 {
		t.Errorf("10,000 texts are told with %d bytes", total)
	}
	var many texts
	if got := strings.Join(many.some(strings.Split("abcdefghijklm", "")), " "); got != "a b c d e f g h i j and 3 more" {
		t.Errorf("of 13 texts %q is told", got)
	}
	if got := many.some(nil); got != nil {
		t.Errorf("of none %q is told", got)
	}
}
