package nimbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/config"
)

// home is the machine that has the checkpoints of the topologies of a name, in a folder
// that is its alone. It is remembered when the topology is gone: its name may come back.
type home struct {
	Machine string `json:"machine"`
	Store   string `json:"store"`
}

// bind ties a topology whose checkpoints are in a folder of one machine to that machine: on
// another one it would begin from nothing. It returns why it cannot run, if it cannot.
func (l *leader) bind(ctx context.Context, t *cluster.Topology, now time.Time) (why string, err error) {
	conf, err := config.OfJSON("", t.Version.Config)
	if err != nil {
		return fmt.Sprintf("its configuration is refused by this version of Isobar: %v", err), nil
	}
	if t.Machine != "" || !unshared(conf) {
		return "", nil
	}
	store := conf.String("checkpoint.store")
	last, err := l.home(ctx, t.Name)
	if err != nil {
		return "", err
	}
	if last.Store == store && t.Version.Start.From != startEmpty {
		t.Machine = last.Machine
		return "", l.topologies.set(ctx, t.Name, *t)
	}
	switch all := machines(l.present(now)); {
	case len(all) == 0:
		return "no supervisor is alive", nil
	case len(all) > 1:
		return fmt.Sprintf("its checkpoints are in a folder, %s, and there are %d machines by now: it is not known which has it. Submit it again with a store that all of them see", store, len(all)), nil
	default:
		t.Machine = all[0]
	}
	if err := l.moveHome(ctx, t.Name, home{t.Machine, store}); err != nil {
		return "", err
	}
	return "", l.topologies.set(ctx, t.Name, *t)
}

// startEmpty is what a start is from that begins anew.
const startEmpty = "empty"

func (l *leader) home(ctx context.Context, name string) (h home, err error) {
	e, err := l.lease.bucket.Get(ctx, homeKey(name))
	if errors.Is(err, cluster.ErrNotFound) {
		return h, nil
	}
	if err != nil {
		return h, err
	}
	if err := json.Unmarshal(e.Value, &h); err != nil {
		return h, fmt.Errorf("the record of where its checkpoints are cannot be read: %w", err)
	}
	return h, nil
}

func (l *leader) moveHome(ctx context.Context, name string, h home) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	ctx, done, err := l.lease.fence(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = l.lease.bucket.Put(ctx, homeKey(name), text)
	return l.wrote(err)
}

func homeKey(name string) string { return "home." + name }

// forgetSupervisor removes the record of a supervisor that will not come back. One that
// does makes it anew.
func (l *leader) forgetSupervisor(ctx context.Context, id string) error {
	if _, known := l.supervisors.get(id); !known {
		var ids []string
		for other := range l.supervisors.all() {
			ids = append(ids, other)
		}
		if ids == nil {
			return fmt.Errorf("supervisor %q is not there: none is", id)
		}
		return fmt.Errorf("supervisor %q is not there, did you mean %s?", id, config.Nearest(id, ids))
	}
	if now := time.Now(); !l.silentSupervisor(id, now) {
		return fmt.Errorf("supervisor %q was heard of %.0f s ago: stop it, and nothing is left to forget", id, l.heard.silence(id, now).Seconds())
	}
	return l.wrote(l.supervisors.remove(ctx, id))
}
