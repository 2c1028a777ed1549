package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/supervisor/slots"
)

// handle answers what the supervisor is asked. Who may ask was decided by nimbus, which
// passes requests on, and by the permissions of the coordination store.
func (s *Supervisor) handle(ctx context.Context, _ string, body []byte) ([]byte, error) {
	var call cluster.Call
	if err := json.Unmarshal(body, &call); err != nil {
		return nil, fmt.Errorf("read a request to supervisor %s: %w", s.cfg.ID, err)
	}
	var reply any
	var err error
	switch call.Verb {
	case cluster.VerbLogs:
		var ask cluster.Logs
		if err = json.Unmarshal(call.Body, &ask); err == nil {
			reply, err = s.readLog(ask)
		}
	case cluster.VerbHealth:
		reply = checkHealth(ctx, s.cfg.HealthDir, s.cfg.HealthTimeout)
	case cluster.VerbKillWorkers:
		reply, err = s.killWorkers(ctx)
	default:
		err = fmt.Errorf("a supervisor does not answer %q: it takes %s, %s and %s", call.Verb, cluster.VerbLogs, cluster.VerbHealth, cluster.VerbKillWorkers)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(reply)
}

func (s *Supervisor) readLog(ask cluster.Logs) (cluster.LogPart, error) {
	if _, ok := cluster.NameOfID(ask.ID); !ok {
		return cluster.LogPart{}, fmt.Errorf("read a log: %q is no id of a topology", ask.ID)
	}
	p := slots.Place{ID: ask.ID, Role: ask.Role, Port: ask.Slot.Port}
	switch {
	case ask.Role == cluster.RoleMaster:
		p.Port = 0
	case ask.Role != cluster.RoleWorker:
		return cluster.LogPart{}, fmt.Errorf("read a log: there is no role %q: it is %s or %s", ask.Role, cluster.RoleMaster, cluster.RoleWorker)
	}
	return s.logs.read(p, ask.Offset, ask.Limit)
}

// killWorkers ends all processes; those that are wanted are started again.
func (s *Supervisor) killWorkers(ctx context.Context) (cluster.KilledWorkers, error) {
	done := make(chan int, 1)
	s.send(message{event: slots.KillOrdered{}, done: done})
	select {
	case n := <-done:
		return cluster.KilledWorkers{Processes: n}, nil
	case <-s.work.Done():
		return cluster.KilledWorkers{}, errors.New("the supervisor ends")
	case <-ctx.Done():
		return cluster.KilledWorkers{}, ctx.Err()
	}
}
