package nimbus

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

// refuses checks that a request is refused with all of some texts.
func (w *world) refuses(user, verb string, body any, texts ...string) {
	w.t.Helper()
	err := w.call(user, verb, body, nil)
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			w.t.Errorf("%s by %s of %+v: error %v, want one with %q", verb, user, body, err, text)
		}
	}
}

func TestRefusedSubmissions(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1", "nimbus.slots.perTopology=4", "nimbus.executors.perTopology=10", "nimbus.protected.keys=checkpoint.s3.endpoint", "nimbus.users=ann,bob")
		w.leads()
		time.Sleep(10 * time.Second)
		good := w.program("wc", "v1")
		for _, c := range []struct {
			change func(s *cluster.Submission)
			want   string
		}{
			{func(s *cluster.Submission) { s.Name = "" }, "the topology has no name"},
			{func(s *cluster.Submission) { s.Name = "a.b" }, `topology name "a.b": a name is made of letters, digits, '-' and '_'`},
			{func(s *cluster.Submission) { s.Name = "null" }, "null in any case"},
			{func(s *cluster.Submission) { s.Config = map[string]any{"topology.workers": "2"} }, `topology.workers is the text "2", must be a whole number`},
			{func(s *cluster.Submission) { s.Config = map[string]any{"topology.workers": 2.5} }, `topology.workers is 2.5 of type float64, must be a whole number`},
			{func(s *cluster.Submission) { s.Config = map[string]any{"topology.worker": 2} }, "topology.worker is not a configuration key, did you mean topology.workers?"},
			{func(s *cluster.Submission) { s.Config = map[string]any{"topology.priority": 2} }, "topology.priority is not supported yet"},
			{func(s *cluster.Submission) { s.Config = map[string]any{"nimbus.admins": "ann"} }, "nimbus.admins is not a configuration key of a topology"},
			{func(s *cluster.Submission) { s.Config = map[string]any{"checkpoint.s3.endpoint": "http://x"} }, "checkpoint.s3.endpoint is http://x: no topology may set it, in this cluster it is  (nimbus.protected.keys)"},
			{func(s *cluster.Submission) { s.Config = map[string]any{"topology.workers": 5} }, "topology.workers is 5: a topology may have 4 workers at most (nimbus.slots.perTopology)"},
			{func(s *cluster.Submission) { s.Components[1].Tasks = 9 }, "the topology has 11 tasks: it may have 10 at most (nimbus.executors.perTopology)"},
			{func(s *cluster.Submission) { s.Components[0].Spout = false }, "the topology has no spout: nothing would ever be emitted"},
			{func(s *cluster.Submission) { s.Components = nil }, "the topology has no spout"},
			{func(s *cluster.Submission) { s.Args = []string{strings.Repeat("x", 400_000)} }, "flags, configuration and components have 400"},
			{func(s *cluster.Submission) { s.Components[1].Tasks = 0 }, `component "count" has 0 tasks, at least 1 is needed`},
			{func(s *cluster.Submission) { s.Components[1].FirstTask = 7 }, `component "count" begins with task 7, must be 3`},
			{func(s *cluster.Submission) { s.Components[1].ID = "in" }, `component "in" is there twice`},
			{func(s *cluster.Submission) { s.Components[1].ID = "" }, "a component has an empty id"},
			{func(s *cluster.Submission) { s.Components[1].Inputs = []string{"out"} }, `component "count" reads from "out", which does not exist`},
			{func(s *cluster.Submission) { s.Binary.SHA256 = "abc" }, `the SHA-256 of the program is "abc", must be 64 hexadecimal digits`},
			{func(s *cluster.Submission) { s.Binary.SHA256 = strings.Repeat("0", 64) }, "the program 000000000000… is not in the object store: upload it first"},
			{func(s *cluster.Submission) { s.Binary.Size = 3 }, "the program was uploaded with 2 bytes, the submission says 3: upload it again"},
			{func(s *cluster.Submission) { s.Binary.Size = 0 }, "the program has 0 bytes: there is nothing to run"},
			{func(s *cluster.Submission) { s.Platform = "darwin/arm64" }, "the program is for darwin/arm64, the supervisors are linux/amd64: build it with GOOS and GOARCH set"},
			{func(s *cluster.Submission) { s.Engine = "1.3.0" }, "the program has Isobar 1.3.0 in it, the cluster is 1.2.3: build it with 1.2"},
			{func(s *cluster.Submission) { s.Engine = "" }, "the program has Isobar  in it, the cluster is 1.2.3"},
			{func(s *cluster.Submission) { s.Config = map[string]any{"checkpoint.store": ""} }, "checkpoint.store is not set: in a cluster it must be s3://BUCKET/PREFIX, or file:// and a folder"},
			{func(s *cluster.Submission) { s.Config = map[string]any{"checkpoint.store": "file:///data"} }, "checkpoint.store is file:///data, and the cluster has 3 machines: a folder of one is not seen by the others"},
			{func(s *cluster.Submission) { s.Config = map[string]any{"checkpoint.store": "file://data"} }, `checkpoint store "file://data": must be file:// and an absolute path`},
			{func(s *cluster.Submission) { s.Start.From = "newest" }, `--from newest: it must be latest, empty, or checkpoints: "newest" is not the name of a checkpoint`},
			{blobMap(`{"dict":{}}`), `blob "dict" does not exist: create it first`},
			{blobMap(`{"..":{"localname":"x"}}`), `blob key ".." is the name of a folder`},
			{blobMap(`{"dict":{"localname":"d/x"}}`), `topology.blobstore.map: blob "dict": its localname is "d/x", must be the name of a file`},
			{func(s *cluster.Submission) { s.Update = true }, "topology wc is not there, so it cannot be updated: submit it"},
		} {
			s := good
			s.Components = slices.Clone(good.Components)
			s.Config = maps.Clone(good.Config)
			c.change(&s)
			w.refuses("ann", cluster.VerbSubmit, s, c.want)
		}
		if w.status("wc") != "gone" {
			t.Error("one of them was accepted")
		}
		w.refuses("eve", cluster.VerbSubmit, good, `user "eve" may not use this cluster: nimbus.users does not name him`)
		w.refuses("eve", cluster.VerbCheck, good, `user "eve" may not use this cluster`)
	})
}

func TestAllThatIsWrongIsToldAtOnce(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		time.Sleep(10 * time.Second)
		s := w.program("a/b", "v1")
		s.Platform, s.Engine = "plan9/386", "9.9.9"
		s.Config = map[string]any{"topology.workers": 0, "topology.nothing": 1}
		s.Components[1].Tasks = 0
		s.Binary.SHA256 = strings.Repeat("0", 64)
		var checked cluster.Checked
		w.must(w.call("ann", cluster.VerbCheck, s, &checked))
		if len(checked.Problems) != 6 || checked.HasBinary {
			t.Errorf("checked: %d problems: %q", len(checked.Problems), checked.Problems)
		}
		w.refuses("ann", cluster.VerbSubmit, s, append(checked.Problems, "7 things are wrong:\n- ", "upload it first")...)
	})
}

func TestWarnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		w.addNimbus("n1")
		w.leads()
		s := w.program("wc", "v1")
		s.Engine = "1.2.9"
		var done cluster.Submitted
		w.must(w.call("ann", cluster.VerbSubmit, s, &done))
		want := []string{"no supervisor is alive: the topology waits for one", "the program has Isobar 1.2.9 in it, the cluster is 1.2.3"}
		if !slices.Equal(done.Warnings, want) {
			t.Errorf("warnings %q, want %q", done.Warnings, want)
		}
	})
}

func TestRefusedCommands(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1", "nimbus.slots.perTopology=4", "nimbus.executors.perTopology=30", "nimbus.protected.keys=checkpoint.retained")
		w.leads()
		s := w.program("wc", "v1")
		s.Config["topology.users"], s.Config["topology.readonly.users"] = "bob", "cy"
		s.Config["topology.key.groups"] = 16
		w.must(w.call("ann", cluster.VerbSubmit, s, nil))
		w.runs("wc")
		w.refuses("ann", cluster.VerbSubmit, s, "topology wc is there already, it is ACTIVE: kill it first, or replace it with update")
		w.refuses("ann", cluster.VerbKill, cluster.Kill{Name: "wd"}, `topology "wd" is not there, did you mean wc?`)
		w.refuses("eve", cluster.VerbKill, cluster.Kill{Name: "wd"}, `topology "wd" is not there: none is`)
		for _, verb := range []string{cluster.VerbKill, cluster.VerbActivate, cluster.VerbDeactivate, cluster.VerbRebalance, cluster.VerbLogLevel, cluster.VerbCredentials, cluster.VerbLogs} {
			for _, user := range []string{"eve", "cy"} {
				w.refuses(user, verb, map[string]any{"name": "wc"}, `user "`+user+`" may not do this with topology wc: it belongs to "ann", and its topology.users does not name him`)
			}
		}
		for _, verb := range []string{cluster.VerbSavepoint, cluster.VerbRollback} {
			w.refuses("cy", verb, map[string]any{"topology": "wc"}, `user "cy" may not do this with topology wc`)
		}
		w.refuses("eve", cluster.VerbStatus, cluster.Named{Name: "wc"}, "its topology.users or topology.readonly.users does not name him")
		w.must(w.call("cy", cluster.VerbStatus, cluster.Named{Name: "wc"}, nil))
		u := s
		u.Update = true
		w.refuses("eve", cluster.VerbSubmit, u, `user "eve" may not do this with topology wc`)
		u.Config = map[string]any{"topology.key.groups": 32, "checkpoint.store": "s3://other", "topology.workers": 2}
		u.Start.From = "3.4"
		w.refuses("bob", cluster.VerbSubmit, u, "topology.key.groups cannot be changed from 16 to 32 while the topology is there", "checkpoint.store cannot be changed from s3://bucket/ck to s3://other",
			"--from 3.4: an update goes on from the last checkpoint")
		for want, r := range map[string]cluster.Rebalance{
			`component "cuont" does not exist, did you mean count?`:                     {Tasks: map[string]int{"cuont": 1}},
			`component "count" cannot have 0 tasks, at least 1 is needed`:               {Tasks: map[string]int{"count": 0}},
			`component "count" cannot have 17 tasks: topology.key.groups is 16`:         {Tasks: map[string]int{"count": 17}},
			"topology.workers is 5: a topology may have 4 workers at most":              {Workers: 5},
			"the topology has 32 tasks: it may have 30 at most":                         {Tasks: map[string]int{"count": 16, "in": 16}},
			"-1 workers, at least 1 is needed":                                          {Workers: -1},
			"topology.key.groups cannot be changed from 16 to 8":                        {Config: map[string]any{"topology.key.groups": 8}},
			"did you mean topology.workers?":                                            {Config: map[string]any{"topology.wokers": 8}},
			"flags, configuration and components have 400":                              {Config: map[string]any{"user.x": strings.Repeat("x", 400_000)}},
			"checkpoint.retained may be set by no topology (nimbus.protected.keys)":     {Config: map[string]any{"checkpoint.retained": 8}},
			"topology.workers is 9: a topology may have 4 workers at most (nimbus.slot": {Config: map[string]any{"topology.workers": 9}},
		} {
			r.Name = "wc"
			w.refuses("bob", cluster.VerbRebalance, r, "topology wc cannot be rebalanced: ", want)
		}
		w.refuses("bob", cluster.VerbLogLevel, cluster.SetLogLevel{Name: "wc", Levels: map[string]cluster.Level{"": {Level: "loud"}}}, `log level "loud" of "" must be debug, info, warn or error`)
		w.refuses("bob", cluster.VerbLogs, cluster.Logs{Name: "wc", Role: cluster.RoleWorker, Slot: cluster.Slot{Supervisor: "sup-x"}}, `supervisor "sup-x", whose log is asked for, is not known: there are sup-a, sup-b, sup-c`)
		w.refuses("bob", cluster.VerbLogs, cluster.Logs{Name: "wc", Role: "cook", Slot: cluster.Slot{Supervisor: "sup-a"}}, `there is no log of a "cook"`)
		w.refuses("bob", "dance", nil, `nimbus knows no request "dance"`)
		w.refuses("bob", cluster.VerbKill, map[string]any{"nmae": "wc"}, `reading the request "kill"`, "nmae")
		w.refuses("bob", cluster.VerbHead, cluster.Named{Name: "wc"}, "asking the topology master of wc")
		w.must(w.call("bob", cluster.VerbKill, cluster.Kill{Name: "wc", WaitSecs: 30}, nil))
		w.refuses("bob", cluster.VerbActivate, cluster.Named{Name: "wc"}, "cannot activate topology wc, it is KILLED: it is on its way out")
		w.refuses("bob", cluster.VerbRebalance, cluster.Rebalance{Name: "wc"}, "cannot rebalance topology wc, it is KILLED")
		w.must(w.call("bob", cluster.VerbKill, cluster.Kill{Name: "wc", WaitSecs: 0}, nil))
		w.until(30*time.Second, "the second kill counts", func() bool { return w.status("wc") == "gone" })
	})
}

func TestKillWithoutTimeUsesThatOfTheTopology(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		s := w.program("wc", "v1")
		s.Config["topology.message.timeout.secs"] = 40
		w.must(w.call("ann", cluster.VerbSubmit, s, nil))
		w.runs("wc")
		w.must(w.call("ann", cluster.VerbKill, cluster.Kill{Name: "wc", WaitSecs: -1}, nil))
		if took := w.until(time.Minute, "it is gone", func() bool { return w.status("wc") == "gone" }); took < 40*time.Second {
			t.Errorf("gone after %v", took)
		}
	})
}

func TestFinishedAndFailedTopologies(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		s := w.program("wc", "v1")
		w.mu.Lock()
		w.broken[s.Binary.SHA256] = "cannot open the input"
		w.mu.Unlock()
		w.must(w.call("ann", cluster.VerbSubmit, s, nil))
		w.until(time.Minute, "it has failed and nothing of it runs", func() bool {
			d := w.detail("wc")
			return d.Topology.Status == cluster.Failed && d.Assignment == nil && len(d.Processes) == 0
		})
		if d := w.detail("wc"); d.Topology.Error != "cannot open the input" {
			t.Errorf("error %q", d.Topology.Error)
		}
		w.refuses("ann", cluster.VerbActivate, cluster.Named{Name: "wc"}, "cannot activate topology wc, it is FAILED: kill it and submit it again with --from latest")
		w.refuses("ann", cluster.VerbSavepoint, cluster.Savepoint{Topology: "wc"}, "topology wc has no topology master that could do this: it is FAILED")
		w.must(w.call("ann", cluster.VerbKill, cluster.Kill{Name: "wc", WaitSecs: -1}, nil))
		w.until(2*time.Second, "its name is free at once", func() bool { return w.status("wc") == "gone" })
	})
}

// minter counts.
type minter struct {
	mu      sync.Mutex
	minted  []string
	revoked []string
}

func (m *minter) Mint(_ context.Context, id string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.minted = append(m.minted, id)
	return "creds of " + id, nil
}

func (m *minter) Revoke(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.revoked = append(m.revoked, id)
	return nil
}

func TestSecretsAndCredentials(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		m := &minter{}
		w.runNimbus("n1", w.server.Connect("nimbus"), m)
		w.leads()
		s := w.program("wc", "v1")
		s.Config["user.db.password"] = "hunter2"
		w.must(w.call("ann", cluster.VerbSubmit, s, nil))
		d := w.runs("wc")
		id := d.Topology.ID
		first := secretsOf(t, w, id)
		if first.Epoch != 1 || len(first.Secret) < 20 || first.Creds != "creds of "+id {
			t.Errorf("secrets %+v", first)
		}
		for _, v := range []cluster.Version{d.Topology.Version, d.Assignment.Version} {
			if v.Config["user.db.password"] != "***" {
				t.Errorf("a secret is shown: %v", v.Config)
			}
		}
		w.must(w.call("ann", cluster.VerbCredentials, cluster.SetCredentials{Name: "wc", Values: cluster.Credentials{"db": "pw"}}, nil))
		until := time.Now().Add(20 * time.Second).UTC()
		w.must(w.call("ann", cluster.VerbLogLevel, cluster.SetLogLevel{Name: "wc", Levels: map[string]cluster.Level{"": {Level: "debug", Until: until}, "in": {Level: "warn"}, "count": {Level: "info"}}}, nil))
		w.must(w.call("ann", cluster.VerbLogLevel, cluster.SetLogLevel{Name: "wc", Remove: []string{"count"}}, nil))
		store := w.server.Connect("root")
		b, err := store.Bucket(w.ctx, cluster.TopologyBucket(id), false)
		w.must(err)
		e, err := b.Get(w.ctx, cluster.KeyCredentials)
		if w.must(err); string(e.Value) != `{"db":"pw"}` {
			t.Errorf("credentials %s", e.Value)
		}
		intent, _, err := w.told(w.ctx, store, id)
		if w.must(err); len(intent.LogLevels) != 2 || intent.LogLevels[""].Level != "debug" || !intent.Active {
			t.Errorf("intent %+v", intent)
		}
		time.Sleep(time.Minute)
		intent, _, err = w.told(w.ctx, store, id)
		if w.must(err); len(intent.LogLevels) != 1 || intent.LogLevels["in"].Level != "warn" {
			t.Errorf("intent a minute later %+v", intent)
		}
		w.must(w.call("ann", cluster.VerbRebalance, cluster.Rebalance{Name: "wc", WaitSecs: 0, Workers: 1}, nil))
		w.until(time.Minute, "it is rebalanced", func() bool { return w.detail("wc").Topology.Version.Epoch == 2 })
		w.runs("wc")
		if second := secretsOf(t, w, id); second.Epoch != 2 || second.Secret == first.Secret || second.Creds != first.Creds {
			t.Errorf("secrets of the next epoch %+v", second)
		}
		w.must(w.call("ann", cluster.VerbKill, cluster.Kill{Name: "wc", WaitSecs: 0}, nil))
		w.until(time.Minute, "it is gone", func() bool { return w.status("wc") == "gone" })
		if got := secretsOf(t, w, id); got != (cluster.Secrets{}) || len(m.minted) != 1 || !slices.Equal(m.revoked, m.minted) {
			t.Errorf("left: %+v; minted %q, revoked %q", got, m.minted, m.revoked)
		}
		if _, err := store.Bucket(w.ctx, cluster.TopologyBucket(id), false); !errors.Is(err, cluster.ErrNotFound) {
			t.Errorf("its bucket: %v", err)
		}
	})
}

func secretsOf(t *testing.T, w *world, id string) (s cluster.Secrets) {
	t.Helper()
	b, err := w.server.Connect("root").Bucket(w.ctx, cluster.BucketSecrets, false)
	w.must(err)
	e, err := b.Get(w.ctx, id)
	if errors.Is(err, cluster.ErrNotFound) {
		return s
	}
	w.must(err)
	w.must(json.Unmarshal(e.Value, &s))
	return s
}

// Requests about what a topology master or a supervisor knows reach it, while the leader goes
// on with others.
func TestRequestsArePassedOn(t *testing.T) {
	bubble(t, func(w *world, _ []*machine) {
		w.addNimbus("n1")
		w.leads()
		w.must(w.call("ann", cluster.VerbSubmit, w.program("wc", "v1"), nil))
		d := w.runs("wc")
		release := make(chan struct{})
		echo := func(_ context.Context, user string, body []byte) ([]byte, error) {
			var call cluster.Call
			if err := json.Unmarshal(body, &call); err != nil {
				return nil, err
			}
			if call.Verb == cluster.VerbSavepoint {
				<-release
			}
			return json.Marshal(map[string]string{"user": user, "verb": call.Verb, "body": string(call.Body)})
		}
		server := w.server.Connect("x")
		defer server.Close()
		for _, service := range []string{cluster.MasterService(d.Topology.ID), cluster.SupervisorService(d.Assignment.Master)} {
			_, err := server.Serve(service, echo)
			w.must(err)
		}
		slow := make(chan map[string]string, 1)
		client := w.server.Connect("ann")
		w.running.Go(func() {
			var got map[string]string
			if err := request(w.ctx, client, cluster.VerbSavepoint, cluster.Savepoint{Topology: "wc", Name: "s"}, &got); err != nil {
				got = map[string]string{"error": err.Error()}
			}
			slow <- got
		})
		time.Sleep(30 * time.Second)
		var got map[string]string
		w.must(w.call("ann", cluster.VerbHead, cluster.Named{Name: "wc"}, &got))
		if got["verb"] != cluster.VerbHead || got["user"] != "nimbus" {
			t.Errorf("head: %v", got)
		}
		w.must(w.call("ann", cluster.VerbLogs, cluster.Logs{Name: "wc", Role: cluster.RoleMaster, Offset: -100, Limit: 10}, &got))
		if want := `"id":"` + d.Topology.ID + `"`; got["verb"] != cluster.VerbLogs || !strings.Contains(got["body"], want) || !strings.Contains(got["body"], d.Assignment.Master) {
			t.Errorf("logs: %v", got)
		}
		close(release)
		if got := <-slow; got["verb"] != cluster.VerbSavepoint {
			t.Errorf("savepoint: %v", got)
		}
	})
}
