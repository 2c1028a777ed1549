package nimbus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/daemonconf"
	"github.com/isobar-io/isobar/engine/config"
)

// handle does what a request asks, or says how it is passed on. It runs on the leader's loop.
func (l *leader) handle(ctx context.Context, user string, call cluster.Call) (reply any, pass passing, err error) {
	switch call.Verb {
	case cluster.VerbCheck:
		reply, err = with(call, func(s cluster.Submission) (any, error) { return l.check(ctx, user, s) })
	case cluster.VerbSubmit:
		reply, err = with(call, func(s cluster.Submission) (any, error) { return l.submit(ctx, user, s) })
	case cluster.VerbKill:
		reply, err = with(call, func(k cluster.Kill) (any, error) { return nil, l.kill(ctx, user, k) })
	case cluster.VerbActivate:
		reply, err = with(call, func(n cluster.Named) (any, error) {
			return nil, l.toggle(ctx, user, n.Name, cluster.CommandActivate)
		})
	case cluster.VerbDeactivate:
		reply, err = with(call, func(n cluster.Named) (any, error) {
			return nil, l.toggle(ctx, user, n.Name, cluster.CommandDeactivate)
		})
	case cluster.VerbRebalance:
		reply, err = with(call, func(r cluster.Rebalance) (any, error) { return nil, l.rebalance(ctx, user, r) })
	case cluster.VerbLogLevel:
		reply, err = with(call, func(s cluster.SetLogLevel) (any, error) { return nil, l.logLevel(ctx, user, s) })
	case cluster.VerbCredentials:
		reply, err = with(call, func(s cluster.SetCredentials) (any, error) { return nil, l.credentials(ctx, user, s) })
	case cluster.VerbStatus:
		reply, err = with(call, func(n cluster.Named) (any, error) { return l.status(user, n.Name) })
	case cluster.VerbSavepoint, cluster.VerbRollback, cluster.VerbHead, cluster.VerbLogs:
		pass, err = l.passed(user, call)
	case cluster.VerbBlobCheck, cluster.VerbBlobRead:
		pass, err = l.passedBlob(user, call)
	default:
		reply, err = l.handleGeneral(ctx, user, call)
	}
	return reply, pass, err
}

// handleGeneral does what is about no topology.
func (l *leader) handleGeneral(ctx context.Context, user string, call cluster.Call) (any, error) {
	class, known := cluster.ClassOf(call.Verb)
	if known {
		if err := l.permissions.Allow(user, class, "", cluster.Audience{}); err != nil {
			return nil, err
		}
	}
	switch call.Verb {
	case cluster.VerbList:
		return l.list(user), nil
	case cluster.VerbSupervisors:
		return l.known(), nil
	case cluster.VerbForget:
		return with(call, func(n cluster.Named) (any, error) { return nil, l.forgetSupervisor(ctx, n.Name) })
	case cluster.VerbHealth:
		return l.health(), nil
	case cluster.VerbConfig:
		return daemonconf.Shown(l.Conf), nil
	case cluster.VerbBlobs:
		return l.listBlobs(user), nil
	case cluster.VerbBlobCreated:
		return with(call, func(b cluster.BlobChange) (any, error) { return nil, l.createBlob(ctx, user, b) })
	case cluster.VerbBlobUpdated:
		return with(call, func(b cluster.BlobChange) (any, error) { return nil, l.updateBlob(ctx, user, b) })
	case cluster.VerbBlobDeleted:
		return with(call, func(b cluster.BlobChange) (any, error) { return nil, l.deleteBlob(ctx, user, b) })
	case cluster.VerbBlobACL:
		return with(call, func(b cluster.BlobChange) (any, error) { return nil, l.blobACL(ctx, user, b) })
	}
	return nil, fmt.Errorf("nimbus knows no request %q: is the client of a later version of Isobar? This is %s", call.Verb, l.Version)
}

// with reads a request's body and gives it to do. A field that is not known is an error:
// what it asks for would not be done.
func with[T any](call cluster.Call, do func(T) (any, error)) (any, error) {
	body, err := read[T](call)
	if err != nil {
		return nil, err
	}
	return do(body)
}

func read[T any](call cluster.Call) (T, error) {
	var body T
	dec := json.NewDecoder(bytes.NewReader(call.Body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&body); err != nil {
		return body, fmt.Errorf("reading the request %q: %w", call.Verb, err)
	}
	return body, nil
}

// find returns a topology for a user who may do what is of a class with it.
func (l *leader) find(user, name string, class cluster.Class) (cluster.Topology, error) {
	t, ok := l.topologies.get(name)
	if !ok {
		if err, damaged := l.topologies.damaged[name]; damaged {
			return t, fmt.Errorf("topology %s: %w", name, err)
		}
		var names []string
		for other, t := range l.topologies.all() {
			if l.permissions.Allow(user, cluster.ClassReadOnly, other, audience(t)) == nil {
				names = append(names, other)
			}
		}
		if len(names) == 0 {
			return t, fmt.Errorf("topology %q is not there: none is", name)
		}
		return t, fmt.Errorf("topology %q is not there, did you mean %s?", name, config.Nearest(name, names))
	}
	return t, l.permissions.Allow(user, class, name, audience(t))
}

// passed passes a request on to a topology's master, or to the supervisor that has a log.
func (l *leader) passed(user string, call cluster.Call) (passing, error) {
	class, _ := cluster.ClassOf(call.Verb)
	if call.Verb == cluster.VerbLogs {
		return l.passedLogs(user, call)
	}
	var name string
	var err error
	switch call.Verb {
	case cluster.VerbSavepoint:
		var s cluster.Savepoint
		s, err = read[cluster.Savepoint](call)
		name = s.Topology
	case cluster.VerbRollback:
		var r cluster.Rollback
		r, err = read[cluster.Rollback](call)
		name = r.Topology
	default:
		var n cluster.Named
		n, err = read[cluster.Named](call)
		name = n.Name
	}
	if err != nil {
		return nil, err
	}
	t, err := l.find(user, name, class)
	if err != nil {
		return nil, err
	}
	if a, ok := l.assignments.get(t.ID); !ok || a.Stop {
		return nil, fmt.Errorf("topology %s has no topology master that could do this: it is %s", name, t.Status)
	}
	return l.to(cluster.MasterService(t.ID), call, "the topology master of "+name), nil
}

func (l *leader) passedLogs(user string, call cluster.Call) (passing, error) {
	logs, err := read[cluster.Logs](call)
	if err != nil {
		return nil, err
	}
	t, err := l.find(user, logs.Name, cluster.ClassTopology)
	if err != nil {
		return nil, err
	}
	logs.ID = t.ID
	a, ok := l.assignments.get(t.ID)
	if logs.Slot.Supervisor == "" && logs.Role == cluster.RoleMaster && ok {
		logs.Slot.Supervisor = a.Master
	}
	if _, known := l.supervisors.get(logs.Slot.Supervisor); !known {
		var names []string
		for id := range l.supervisors.all() {
			names = append(names, id)
		}
		return nil, fmt.Errorf("supervisor %q, whose log is asked for, is not known: there are %s", logs.Slot.Supervisor, strings.Join(names, ", "))
	}
	if logs.Role != cluster.RoleMaster && logs.Role != cluster.RoleWorker {
		return nil, fmt.Errorf("there is no log of a %q: it must be %s or %s", logs.Role, cluster.RoleMaster, cluster.RoleWorker)
	}
	if call.Body, err = json.Marshal(logs); err != nil {
		return nil, err
	}
	return l.to(cluster.SupervisorService(logs.Slot.Supervisor), call, "supervisor "+logs.Slot.Supervisor), nil
}

// lookTime is how long a topology master or a supervisor may take to show what it has. One
// that is frozen, or cut off without a word, would let others wait for minutes.
const lookTime = 3 * time.Second

func (l *leader) to(service string, call cluster.Call, who string) passing {
	return func(ctx context.Context) ([]byte, error) {
		body, err := json.Marshal(call)
		if err != nil {
			return nil, err
		}
		if call.Verb == cluster.VerbHead || call.Verb == cluster.VerbLogs {
			var done context.CancelFunc
			ctx, done = context.WithTimeout(ctx, lookTime)
			defer done()
		}
		reply, err := l.Store.Request(ctx, service, body)
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("asking %s: it does not answer within %v: its process or its machine is frozen, cut off or dead", who, lookTime)
		}
		if err != nil {
			return nil, fmt.Errorf("asking %s: %w", who, err)
		}
		return reply, nil
	}
}

// logLevel changes the log levels that the intent holds.
func (l *leader) logLevel(ctx context.Context, user string, s cluster.SetLogLevel) error {
	t, err := l.find(user, s.Name, cluster.ClassTopology)
	if err != nil {
		return err
	}
	var f findings
	for logger, level := range s.Levels {
		if !slices.Contains([]string{"debug", "info", "warn", "error"}, level.Level) {
			f.problem("log level %q of %q must be debug, info, warn or error", level.Level, logger)
		}
	}
	b, err := l.bucketOf(ctx, t.ID)
	if err != nil {
		return err
	}
	var intent cluster.Intent
	if text, ok := b.get(cluster.KeyIntent); ok {
		if err := json.Unmarshal(text, &intent); err != nil {
			return err
		}
	}
	var names []string
	for _, c := range t.Version.Components {
		names = append(names, c.ID)
	}
	for _, logger := range slices.Concat(slices.Collect(maps.Keys(s.Levels)), s.Remove) {
		_, set := intent.LogLevels[logger] // it may be left from a version that had it
		if logger != "" && !set && !slices.Contains(names, logger) {
			f.problem("component %q does not exist, did you mean %s?", logger, config.Nearest(logger, names))
		}
	}
	slices.Sort(f.problems)
	if err := refused("setting log levels of "+s.Name, f.problems); err != nil {
		return err
	}
	if intent.LogLevels == nil {
		intent.LogLevels = map[string]cluster.Level{}
	}
	for logger, level := range s.Levels {
		intent.LogLevels[logger] = level
	}
	for _, logger := range s.Remove {
		delete(intent.LogLevels, logger)
	}
	return l.wrote(b.put(ctx, cluster.KeyIntent, intent))
}

func (l *leader) credentials(ctx context.Context, user string, s cluster.SetCredentials) error {
	t, err := l.find(user, s.Name, cluster.ClassTopology)
	if err != nil {
		return err
	}
	b, err := l.bucketOf(ctx, t.ID)
	if err != nil {
		return err
	}
	return l.wrote(b.put(ctx, cluster.KeyCredentials, s.Values))
}

// wrote looks at how the write of a request ended: if it is not known what is kept now, all
// is read again.
func (l *leader) wrote(err error) error {
	if err != nil {
		l.stale = true
		return fmt.Errorf("it is not known whether this was done, look and ask again: %w", err)
	}
	return nil
}
