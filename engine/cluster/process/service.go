package process

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/isobar-io/isobar/engine/cluster"
)

// serve answers the requests for this topology master until the result is called.
func (m *leader) serve() (stop func()) {
	stop, err := m.Store.Serve(cluster.MasterService(m.ID), m.answer)
	if err != nil {
		m.Logger.Error("no requests for this topology master are answered", "err", err)
		return func() {}
	}
	return stop
}

// answer does what a request asks for. Nimbus has made sure that its sender may.
func (m *leader) answer(ctx context.Context, _ string, body []byte) ([]byte, error) {
	var call cluster.Call
	if err := json.Unmarshal(body, &call); err != nil {
		return nil, fmt.Errorf("read a request: %w", err)
	}
	switch call.Verb {
	case cluster.VerbHead:
		h, err := m.control.Head(ctx)
		return reply(h, err)
	case cluster.VerbSavepoint:
		var s cluster.Savepoint
		if err := json.Unmarshal(call.Body, &s); err != nil {
			return nil, fmt.Errorf("read a request: %w", err)
		}
		refs, err := m.control.Savepoint(ctx, s.Name)
		return reply(cluster.SavepointTaken{Checkpoints: refs}, err)
	case cluster.VerbRollback:
		var r cluster.Rollback
		if err := json.Unmarshal(call.Body, &r); err != nil {
			return nil, fmt.Errorf("read a request: %w", err)
		}
		return reply(struct{}{}, m.control.Rollback(ctx, r.To, r.DropUnpublished))
	}
	return nil, fmt.Errorf("a topology master knows no request %q", call.Verb)
}

func reply(v any, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}
