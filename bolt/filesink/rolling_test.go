package filesink

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-io/isobar/bolt/bolttest"
	"github.com/isobar-io/isobar/tuple"
	"github.com/isobar-io/isobar/txn"
)

var events = &tuple.Stream{Component: "in", ID: tuple.DefaultStream, Fields: tuple.Fields{"key", "n"}}

func event(i int) *tuple.Tuple {
	return tuple.New(events, tuple.String(fmt.Sprintf("k%d, \"quoted\"", i%3)), tuple.Int(i))
}

// shownLines returns the lines of all files that show in dir.
func shownLines(t testing.TB, dir string) []string {
	t.Helper()
	var all []string
	for _, name := range shownFiles(t, dir) {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if len(data) == 0 || data[len(data)-1] != '\n' {
			t.Fatalf("file %s is empty or ends within a line: %q", name, data)
		}
		all = append(all, lines(string(data))...)
	}
	return all
}

func lines(text string) []string {
	return strings.SplitAfter(text, "\n")[:strings.Count(text, "\n")]
}

// shownFiles and hiddenFiles return the names in dir, but fences.
func shownFiles(t testing.TB, dir string) []string  { return names(t, dir, false) }
func hiddenFiles(t testing.TB, dir string) []string { return names(t, dir, true) }

func names(t testing.TB, dir string, hidden bool) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") == hidden && !strings.HasSuffix(e.Name(), ".fence") {
			names = append(names, e.Name())
		}
	}
	return names
}

// clock returns a clock that goes on by a second whenever it is read.
func clock() func() time.Time {
	now := time.Unix(1000, 0)
	return func() time.Time { now = now.Add(time.Second); return now }
}

func TestRollingConformance(t *testing.T) {
	for name, o := range map[string]RollingOptions{
		"all batches":           {RollBatches: 100},
		"a file for each batch": {},
		"two batches":           {RollBatches: 2, Format: JSON()},
		"any of all conditions": {RollBatches: 3, RollBytes: 60, RollAfter: 10 * time.Second, Format: CSV(false)},
	} {
		t.Run(name, func(t *testing.T) {
			bolttest.Run(t, func(t testing.TB) bolttest.Sink {
				dir := filepath.Join(t.TempDir(), "out")
				return bolttest.Sink{
					New: func() txn.Bolt {
						r := NewRolling(dir, o)
						r.now = clock()
						r.sync = func(*os.File) error { return nil } // no machine dies here, and it is slow
						return r
					},
					Tuple: event,
					Shown: func(t testing.TB) []string { return shownLines(t, dir) },
					Want: func(n int) (want []string) {
						format := o.Format
						if format.append == nil {
							format = Lines()
						}
						for i := range n {
							line, err := format.append(nil, event(i))
							if err != nil {
								t.Fatal(err)
							}
							want = append(want, string(line))
						}
						return want
					},
					Fenced: true,
				}
			})
		})
	}
}

func TestLatestConformance(t *testing.T) {
	bolttest.Run(t, func(t testing.TB) bolttest.Sink {
		path := filepath.Join(t.TempDir(), "out.tsv")
		return bolttest.Sink{
			New: func() txn.Bolt {
				l := NewLatest(path)
				l.now = clock()
				return l
			},
			Tuple:  event,
			Fenced: true,
			Shown: func(t testing.TB) []string {
				data, err := os.ReadFile(path)
				if err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
				return lines(string(data))
			},
			Want: func(n int) (want []string) {
				for i := max(0, n-3); i < n; i++ {
					want = append(want, fmt.Sprintf("%s\t%d\n", event(i).Str(0), i))
				}
				return want
			},
		}
	})
}

// roller drives a sink as the engine does, one batch after the other.
type roller struct {
	*Rolling
	t       *testing.T
	gen     txn.Generation
	clock   time.Time
	batch   txn.BatchID
	handles []txn.Handle
}

func newRoller(t *testing.T, dir string, o RollingOptions, gen txn.Generation, handles ...txn.Handle) *roller {
	t.Helper()
	r := &roller{Rolling: NewRolling(dir, o), t: t, gen: gen, clock: time.Unix(1000, 0), handles: handles}
	r.now = func() time.Time { return r.clock }
	if err := r.Open(txn.NewContext(t.Context(), txn.Context{Topology: "top", Component: "sink", TaskIndex: 2, Generation: gen}, nil)); err != nil {
		t.Fatal(err)
	}
	if err := r.InitState(handles); err != nil {
		t.Fatal(err)
	}
	if len(handles) > 0 {
		r.Rolling.batch = handles[len(handles)-1].Batch + 1
		r.batch = handles[len(handles)-1].Batch
	}
	return r
}

func (r *roller) put(tuples ...*tuple.Tuple) {
	r.t.Helper()
	for _, tp := range tuples {
		if err := r.Execute(tp, nil); err != nil {
			r.t.Fatal(err)
		}
	}
}

// commitBatch ends a batch and commits it, but does not acknowledge it.
func (r *roller) commitBatch() {
	r.t.Helper()
	r.batch++
	state, err := r.FinishBatch(r.batch, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	data, err := r.Commit(r.t.Context(), r.batch, state)
	if err != nil {
		r.t.Fatal(err)
	}
	r.handles = append(r.handles, txn.Handle{Batch: r.batch, Generation: r.gen, Data: data})
}

func (r *roller) endBatch() {
	r.t.Helper()
	r.commitBatch()
	if err := r.AckCommit(r.t.Context(), r.batch, r.batch-1); err != nil {
		r.t.Fatal(err)
	}
	r.handles = r.handles[len(r.handles)-1:]
}

func TestFilesRollAsAsked(t *testing.T) {
	for name, tc := range map[string]struct {
		o    RollingOptions
		want []int // files that show after each batch of three tuples, 2 s apart
	}{
		"each batch":     {RollingOptions{}, []int{1, 2, 3, 4}},
		"two batches":    {RollingOptions{RollBatches: 2}, []int{0, 1, 1, 2}},
		"size":           {RollingOptions{RollBytes: 40}, []int{1, 2, 3, 4}},
		"a larger size":  {RollingOptions{RollBytes: 80}, []int{0, 1, 1, 2}},
		"time":           {RollingOptions{RollAfter: 4 * time.Second}, []int{0, 1, 1, 2}},
		"size and time":  {RollingOptions{RollBytes: 40, RollAfter: time.Hour}, []int{1, 2, 3, 4}},
		"no such number": {RollingOptions{RollBatches: 9}, []int{0, 0, 0, 0}},
	} {
		dir := t.TempDir()
		r := newRoller(t, dir, tc.o, 1)
		for i, want := range tc.want {
			r.put(event(0), event(1), event(2))
			r.clock = r.clock.Add(2 * time.Second)
			r.endBatch()
			if got := shownFiles(t, dir); len(got) != want {
				t.Errorf("%s: after batch %d there are files %q, want %d", name, i+1, got, want)
			}
		}
		r.endBatch()
		if err := r.InputEnded(nil); err != nil {
			t.Fatal(err)
		}
		r.endBatch()
		if got := shownLines(t, dir); len(got) != 12 {
			t.Errorf("%s: in the end %d lines show, want 12", name, len(got))
		}
		if got := hiddenFiles(t, dir); len(got) > 0 {
			t.Errorf("%s: hidden files %q are left", name, got)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestNamesTellWhereAFileComesFrom(t *testing.T) {
	dir := t.TempDir()
	r := newRoller(t, dir, RollingOptions{Format: JSON()}, 7)
	r.put(event(0))
	if want := []string{".top~sink~2~000007~00000001~001.jsonl.pending"}; !slices.Equal(hiddenFiles(t, dir), want) {
		t.Errorf("hidden %q, want %q", hiddenFiles(t, dir), want)
	}
	r.endBatch()
	r.endBatch()
	r.put(event(1))
	r.endBatch()
	if want := []string{"top~sink~2~000007~00000001~001.jsonl", "top~sink~2~000007~00000003~002.jsonl"}; !slices.Equal(shownFiles(t, dir), want) {
		t.Errorf("files %q, want %q", shownFiles(t, dir), want)
	}
}

func TestLeftoversGoAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	others := []string{
		".top~sink~3~000001~00000001~001.txt.pending", // another task
		".top~sink~20~000001~00000001~001.txt.pending",
		".top~sunk~2~000001~00000001~001.txt.pending",
		".top~sink~2~000009~00000001~001.txt.pending", // a newer generation
		".top~sink~2~000001~00000001~001.txt",
		".hidden", "notes.txt",
	}
	leftovers := []string{
		".top~sink~2~000001~00000001~001.txt.pending",
		".top~sink~2~000002~00000001~001.csv.pending",
	}
	for _, name := range slices.Concat(others, leftovers) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	newRoller(t, dir, RollingOptions{}, 2)
	got := slices.Concat(hiddenFiles(t, dir), shownFiles(t, dir))
	if want := slices.Sorted(slices.Values(others)); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("left %q, want %q", got, want)
	}
}

func TestRollingRefusesWhatIsNotItsOwn(t *testing.T) {
	dir := t.TempDir()
	r := newRoller(t, dir, RollingOptions{RollBatches: 2}, 1)
	r.put(event(0))
	r.commitBatch()
	r.put(event(1))
	r.commitBatch()
	hidden := filepath.Join(dir, hiddenFiles(t, dir)[0])
	good, err := os.ReadFile(hidden)
	if err != nil {
		t.Fatal(err)
	}
	initState := func(handles ...txn.Handle) error {
		r := NewRolling(dir, RollingOptions{})
		if err := r.Open(txn.NewContext(t.Context(), txn.Context{Topology: "top", Component: "sink", TaskIndex: 2, Generation: 2}, nil)); err != nil {
			t.Fatal(err)
		}
		return r.InitState(handles)
	}
	for name, tc := range map[string]struct {
		data    []byte
		handles []txn.Handle
		want    string
	}{
		"cut":              {good[:len(good)-1], r.handles, "were committed"},
		"changed":          {append([]byte("X"), good[1:]...), r.handles, "are not those that were committed"},
		"open and cut":     {nil, r.handles[:1], "were committed"},
		"no handle":        {good, []txn.Handle{{Batch: 1, Data: []byte("{")}}, "handle of batch 1"},
		"another version":  {good, []txn.Handle{{Batch: 1, Data: []byte(`{"v":2}`)}}, "version 2"},
		"open and missing": {good, []txn.Handle{{Batch: 1, Data: []byte(`{"v":1,"open":{"name":"x","bytes":1}}`)}}, "no such file"},
	} {
		if err := os.WriteFile(hidden, tc.data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := initState(tc.handles...); !txn.IsFatal(err) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want a fatal one with %q", name, err, tc.want)
		}
		if len(shownFiles(t, dir)) > 0 {
			t.Fatalf("%s: %q is published", name, shownFiles(t, dir))
		}
	}
}

func TestRollingRefusesTheFolderOfAnotherRun(t *testing.T) {
	dir := t.TempDir()
	r := newRoller(t, dir, RollingOptions{}, 1)
	r.put(event(0))
	r.endBatch()
	published := filepath.Join(dir, shownFiles(t, dir)[0])
	other := NewRolling(dir, RollingOptions{})
	if err := other.Open(txn.NewContext(t.Context(), txn.Context{Topology: "top", Component: "sink", TaskIndex: 2, Generation: 1}, nil)); err != nil {
		t.Fatal(err)
	}
	if err := other.InitState(nil); !txn.IsFatal(err) || !strings.Contains(err.Error(), filepath.Base(published)) {
		t.Errorf("error %v", err)
	}
	// A consumer has taken the file away, and the handle is listed again.
	if err := os.Remove(published); err != nil {
		t.Fatal(err)
	}
	newRoller(t, dir, RollingOptions{}, 2, r.handles...)
	if got := shownFiles(t, dir); len(got) > 0 {
		t.Errorf("files %q came back", got)
	}
	for _, o := range []RollingOptions{{RollBytes: -1}, {RollBatches: -1}, {RollAfter: -1}} {
		if err := NewRolling(dir, o).Open(txn.NewContext(t.Context(), txn.Context{}, nil)); !txn.IsFatal(err) {
			t.Errorf("%+v: error %v", o, err)
		}
	}
	if err := NewRolling(dir, RollingOptions{}).Open(txn.NewContext(t.Context(), txn.Context{Topology: "a~b"}, nil)); !txn.IsFatal(err) {
		t.Errorf("a topology with the separator in its name: error %v", err)
	}
}

func TestPublishReplacesNothing(t *testing.T) {
	for name, disturb := range map[string]func(dir, name string) error{
		"is there already": func(dir, name string) error { return os.WriteFile(filepath.Join(dir, name), nil, 0o600) },
		"were committed":   func(dir, name string) error { return os.Truncate(filepath.Join(dir, hidden(name)), 1) },
	} {
		dir := t.TempDir()
		r := newRoller(t, dir, RollingOptions{}, 1)
		r.put(event(0))
		r.commitBatch()
		if err := disturb(dir, "top~sink~2~000001~00000001~001.txt"); err != nil {
			t.Fatal(err)
		}
		if err := r.AckCommit(t.Context(), 1, 0); !txn.IsFatal(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want a fatal one with %q", err, name)
		}
	}
}

var mixed = []*tuple.Tuple{
	tuple.New(&tuple.Stream{Component: "c", ID: tuple.DefaultStream, Fields: tuple.Fields{"text", "bytes", "int", "float", "bool", "time", "none"}},
		tuple.String("a \"b\"\t\r\n\\\x01é\u2028"), tuple.Bytes([]byte("x,\xffy")), tuple.Int(-7), tuple.Float64(2.5), tuple.Bool(true),
		tuple.Time(time.Unix(0, 5).UTC()), tuple.Value{}),
	tuple.New(&tuple.Stream{Component: "c", ID: tuple.DefaultStream, Fields: tuple.Fields{"only"}}, tuple.String("")),
	tuple.New(&tuple.Stream{Component: "c", ID: tuple.DefaultStream}),
}

func render(t *testing.T, f Format) string {
	t.Helper()
	var b []byte
	for _, tp := range mixed {
		if f.header != nil {
			b = f.header(b, tp.Stream())
		}
		var err error
		if b, err = f.append(b, tp); err != nil {
			t.Fatal(err)
		}
	}
	return string(b)
}

func TestFormats(t *testing.T) {
	for name, tc := range map[string]struct {
		f    Format
		want string
	}{
		"lines": {Lines(), `a "b"\t\r\n\\` + "\x01é\u2028\tx,\xffy\t-7\t2.5\ttrue\t1970-01-01T00:00:00.000000005Z\t\n\n\n"},
		"json": {JSON(), `{"text":"a \"b\"\t\r\n\\` + `\u0001` + "é\u2028" + `","bytes":"x,` + "\ufffd" + `y","int":-7,"float":2.5,"bool":true,"time":"1970-01-01T00:00:00.000000005Z","none":null}` +
			"\n" + `{"only":""}` + "\n{}\n"},
		"csv": {CSV(true), "text,bytes,int,float,bool,time,none\r\n\"a \"\"b\"\"\t\r\n\\\x01é\u2028\",\"x,\xffy\",-7,2.5,true,1970-01-01T00:00:00.000000005Z,\r\n" +
			"only\r\n\"\"\r\n\r\n\r\n"},
	} {
		if got := render(t, tc.f); got != tc.want {
			t.Errorf("%s:\n%q, want\n%q", name, got, tc.want)
		}
	}
}

func TestReadersUnderstandTheFormats(t *testing.T) {
	d := json.NewDecoder(strings.NewReader(render(t, JSON())))
	var first map[string]any
	if err := d.Decode(&first); err != nil || first["text"] != "a \"b\"\t\r\n\\\x01é\u2028" || first["int"] != -7.0 || first["none"] != nil {
		t.Errorf("JSON reads %v, error %v", first, err)
	}
	r := csv.NewReader(strings.NewReader(render(t, CSV(false))))
	r.FieldsPerRecord = -1
	records, err := r.ReadAll()
	// The reader turns CR LF within a field into LF.
	if err != nil || len(records) != 2 || records[0][0] != "a \"b\"\t\n\\\x01é\u2028" || records[0][1] != "x,\xffy" || records[1][0] != "" {
		t.Errorf("CSV reads %q, error %v", records, err)
	}
	if _, err := JSON().append(nil, tuple.New(events, tuple.Any(make(chan int)), tuple.Int(1))); err == nil || !strings.Contains(err.Error(), `"key"`) {
		t.Errorf("a channel as JSON: error %v", err)
	}
}

func TestHeaderNeedsTheSameFieldsInAFile(t *testing.T) {
	dir := t.TempDir()
	r := newRoller(t, dir, RollingOptions{Format: CSV(true), RollBatches: 2}, 1)
	same := &tuple.Stream{Component: "other", ID: tuple.DefaultStream, Fields: tuple.Fields{"key", "n"}}
	r.put(event(0), tuple.New(same, tuple.String("b"), tuple.Int(1)))
	r.endBatch()
	second := newRoller(t, dir, RollingOptions{Format: CSV(true), RollBatches: 2}, 2, r.handles...)
	second.put(event(2))
	if err := second.Execute(mixed[0], nil); err == nil || !strings.Contains(err.Error(), "header") {
		t.Errorf("other fields: error %v", err)
	}
	second.endBatch()
	got := strings.Join(shownLines(t, dir), "")
	if want := "key,n\r\n\"k0, \"\"quoted\"\"\",0\r\nb,1\r\n\"k2, \"\"quoted\"\"\",2\r\n"; got != want {
		t.Errorf("file holds %q, want %q", got, want)
	}
}

func TestRollingWritesWithoutAllocating(t *testing.T) {
	r := newRoller(t, t.TempDir(), RollingOptions{Format: JSON()}, 1)
	e := event(1)
	r.put(e)
	for range 2 * bufferBytes / 20 {
		r.put(e)
	}
	if n := testing.AllocsPerRun(1000, func() { _ = r.Execute(e, nil) }); n != 0 {
		t.Errorf("%v allocations a tuple", n)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
