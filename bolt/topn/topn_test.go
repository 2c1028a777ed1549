package topn

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-io/isobar/engine"
	"github.com/isobar-io/isobar/spout/generator"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

func entryOf(item string, score any) entry {
	key, err := tuple.AppendKey(nil, tuple.String(item))
	if err != nil {
		panic(err)
	}
	return entry{key, tuple.Any(score)}
}

func (e entry) String() string { return fmt.Sprintf("%s=%v", e.item[1:], e.score.Any()) }

// A ranking is what sorting everything would give, as long as no score goes down.
func TestRankingIsThatOfAllItems(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 5).Draw(t, "n")
		all := map[string]int{}
		var top []entry
		for range rapid.IntRange(0, 60).Draw(t, "tuples") {
			item := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g"}).Draw(t, "item")
			all[item] += rapid.IntRange(0, 3).Draw(t, "more")
			before := fmt.Sprint(top)
			var changed bool
			top, changed = rank(top, entryOf(item, all[item]), most)
			if changed != (fmt.Sprint(top) != before) {
				t.Fatalf("%s became %s, changed is %v", before, top, changed)
			}
		}
		var want []entry
		for item, score := range all {
			want = append(want, entryOf(item, score))
		}
		slices.SortFunc(want, func(a, b entry) int {
			return cmp.Or(cmp.Compare(b.score.Int64(), a.score.Int64()), strings.Compare(string(a.item), string(b.item)))
		})
		if want = want[:min(len(want), most)]; fmt.Sprint(top) != fmt.Sprint(want) {
			t.Fatalf("ranking %s, want %s", top, want)
		}
	})
}

func TestLowerScoreMovesAnItemDown(t *testing.T) {
	var top []entry
	for _, step := range []struct {
		item  string
		score any
		want  string
	}{
		{"a", 5, "[a=5]"},
		{"b", 7, "[b=7 a=5]"},
		{"c", 6.5, "[b=7 c=6.5 a=5]"},
		{"d", 4, "[b=7 c=6.5 a=5]"},
		{"b", uint64(1), "[c=6.5 a=5 b=1]"},
		{"d", 4, "[c=6.5 a=5 d=4]"},
		{"d", int64(-4), "[c=6.5 a=5 d=-4]"},
		{"e", -9, "[c=6.5 a=5 d=-4]"},
		{"e", uint64(1 << 63), "[e=9223372036854775808 c=6.5 a=5]"},
	} {
		top, _ = rank(top, entryOf(step.item, step.score), 3)
		if got := fmt.Sprint(top); got != step.want {
			t.Errorf("after %s=%v the ranking is %s, want %s", step.item, step.score, got, step.want)
		}
	}
}

func TestScoresCompareAsNumbers(t *testing.T) {
	ordered := []any{-2.5, -2, -1, 0, uint64(0), 0.5, 1, uint64(1), 1.5, int64(1<<63 - 2), uint64(1<<63 - 1), uint64(1 << 63), 1e30}
	for i, a := range ordered {
		for j, b := range ordered {
			x, y := tuple.Any(a), tuple.Any(b)
			got := compareScores(x, y)
			if want := cmp.Compare(i, j); got != want && float(x) != float(y) || got != -compareScores(y, x) {
				t.Errorf("%v (%T) compares to %v (%T) as %d, want %d", a, a, b, b, got, want)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	c := codec()
	b, err := c.Append(nil, []entry{entryOf("a", 1), entryOf("b", -2.5)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		top, err := c.Decode(b, 1)
		if err != nil {
			return
		}
		again, err := c.Append(nil, top)
		if err != nil {
			t.Fatalf("%x decodes to %v, which does not encode: %v", b, top, err)
		}
		if back, err := c.Decode(again, 1); err != nil || fmt.Sprint(back) != fmt.Sprint(top) {
			t.Fatalf("%x decodes to %v and again to %v: %v", b, top, back, err)
		}
	})
}

// source emits ten words with their growing totals.
func source(n uint64) txn.Spout {
	return generator.New(generator.Options{Fields: tuple.Fields{"group", "word", "total"}, Tuples: n, Emit: func(i uint64, out *txn.Collector) {
		word := i % 10
		out.Emit(tuple.Uint64(word%2), tuple.String(fmt.Sprint("w", word)), tuple.Uint64(i/10*(word+1)))
	}})
}

// last keeps the latest item and score of each place.
type last struct{ rows map[string]string }

func (l *last) Execute(t *tuple.Tuple, _ *txn.Collector) error {
	n := t.Len()
	l.rows[fmt.Sprint(t.Values()[:n-2])] = fmt.Sprint(t.Values()[n-2:])
	return nil
}

func rankings(t *testing.T, o Options, tasks int) map[string]string {
	t.Helper()
	rows := map[string]string{}
	b := engine.NewTopologyBuilder()
	b.SetSpout("words", func() txn.Spout { return source(1000) }, 1)
	in := b.SetBolt("top", func() txn.Bolt { return New(o) }, tasks)
	if o.Key == nil {
		in.GlobalGrouping("words")
	} else {
		in.FieldsGrouping("words", o.Key...)
	}
	b.SetBolt("last", func() txn.Bolt { return &last{rows} }, 1).GlobalGrouping("top")
	top, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Run(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestRankingsOfATopology(t *testing.T) {
	all := rankings(t, Options{N: 3, Item: "word", Score: "total"}, 1)
	if want := fmt.Sprint(map[string]string{"[1]": `["w9" 990]`, "[2]": `["w8" 891]`, "[3]": `["w7" 792]`}); fmt.Sprint(all) != want {
		t.Errorf("one ranking: %v, want %v", all, want)
	}
	each := rankings(t, Options{N: 2, Item: "word", Score: "total", Key: []string{"group"}}, 2)
	if want := fmt.Sprint(map[string]string{
		"[0 1]": `["w8" 891]`, "[0 2]": `["w6" 693]`, "[1 1]": `["w9" 990]`, "[1 2]": `["w7" 792]`,
	}); fmt.Sprint(each) != want {
		t.Errorf("a ranking for each group: %v, want %v", each, want)
	}
}

func TestMistakesAreRefused(t *testing.T) {
	ctx := txn.NewContext(t.Context(), txn.Context{Component: "top", TaskCount: 2}, nil)
	err := New(Options{}).Open(ctx, nil)
	for _, want := range []string{`"top"`, "ranks 0 items", "Item and Score", "2 tasks"} {
		if !txn.IsFatal(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	b := New(Options{N: 1, Item: "word", Score: "total"})
	s := &tuple.Stream{Component: "c", ID: tuple.DefaultStream, Fields: tuple.Fields{"word", "total"}}
	for want, vals := range map[string][]tuple.Value{
		`score "many" of item "a" is not a number`: {tuple.String("a"), tuple.String("many")},
		"cannot be part of a key":                  {tuple.Any(struct{}{}), tuple.Int(1)},
	} {
		if err := b.Execute(tuple.New(s, vals...), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	other := &tuple.Stream{Component: "c", ID: tuple.DefaultStream, Fields: tuple.Fields{"word"}}
	if err := b.Execute(tuple.New(other, tuple.String("a")), nil); err == nil || !strings.Contains(err.Error(), `"total"`) {
		t.Errorf("error %v", err)
	}
}

func ExampleNew() {
	b := engine.NewTopologyBuilder()
	b.SetSpout("words", func() txn.Spout { return source(100) }, 1)
	b.SetBolt("top", func() txn.Bolt { return New(Options{N: 2, Item: "word", Score: "total"}) }, 1).GlobalGrouping("words")
	seen := &last{map[string]string{}}
	b.SetBolt("last", func() txn.Bolt { return seen }, 1).GlobalGrouping("top")
	t, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := engine.Run(context.Background(), t); err != nil {
		fmt.Println(err)
	}
	fmt.Println(seen.rows["[1]"], seen.rows["[2]"])
	// Output: ["w9" 90] ["w8" 81]
}
