package remote

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/poison"
	"github.com/isobar-io/isobar/engine/task"
	"github.com/isobar-io/isobar/engine/worker"
	"github.com/isobar-io/isobar/tuple"
)

// protocol is the version of what is said here; both ends have the same.
const protocol = 1

// maxMessage bounds a message: what a task hands in with a checkpoint is part of one.
const maxMessage = 256 << 20

// message is what the two ends say to each other. What is set besides Kind depends on it.
type message struct {
	Kind       kind             `json:"kind"`
	Generation tuple.Generation `json:"generation,omitempty"`

	Hello   *hello         `json:"hello,omitempty"`
	Restore *restore       `json:"restore,omitempty"`
	Spout   *spoutOrder    `json:"spout,omitempty"`
	Ack     *ackOrder      `json:"ack,omitempty"`
	Event   *event         `json:"event,omitempty"`
	Report  *errorReport   `json:"report,omitempty"`
	Counts  []worker.Count `json:"counts,omitempty"`

	// Unlinked are the workers of the generation that the sender does not reach; none: it
	// reaches them by now.
	Unlinked []string `json:"unlinked,omitempty"`
}

type kind string

const (
	kindChallenge kind = "challenge" // Hello with a nonce; the master's first word
	kindHello     kind = "hello"     // the worker's answer
	kindWelcome   kind = "welcome"   // Hello with the master's proof
	kindRefused   kind = "refused"   // Hello with a Reason; the last word
	kindPing      kind = "ping"
	kindRestore   kind = "restore"
	kindStart     kind = "start"
	kindStop      kind = "stop"
	kindSpout     kind = "spout"
	kindAck       kind = "ack"
	kindQuit      kind = "quit"
	kindEvent     kind = "event"
	kindEnded     kind = "ended"
	kindReport    kind = "report"
	kindUnlinked  kind = "unlinked"
	kindCounts    kind = "counts"
)

// hello is how the two ends get to know each other.
type hello struct {
	Protocol    int    `json:"protocol,omitempty"`
	Topology    string `json:"topology,omitempty"` // id
	Epoch       uint64 `json:"epoch,omitempty"`
	Worker      string `json:"worker,omitempty"`
	Incarnation uint64 `json:"incarnation,omitempty"`
	Links       string `json:"links,omitempty"` // where other workers reach this one
	Plan        string `json:"plan,omitempty"`  // fingerprint: both have built the same topology
	Nonce       []byte `json:"nonce,omitempty"`
	Proof       []byte `json:"proof,omitempty"` // of the other's nonce
	Reason      string `json:"reason,omitempty"`
}

// restore has a worker make its tasks of a region for a generation.
type restore struct {
	RunID    string                               `json:"runId"`
	Region   string                               `json:"region"`
	Place    map[int]string                       `json:"place"` // worker by task, for the whole region
	Links    map[string]Peer                      `json:"links"` // the others
	Batch    tuple.BatchID                        `json:"batch"`
	Tasks    map[string][]checkpoint.TaskSnapshot `json:"tasks"`
	OneByOne []string                             `json:"oneByOne,omitempty"`
	Failed   []failed                             `json:"failed,omitempty"`
}

// Peer is how the links of a worker are reached.
type Peer struct {
	Address     string `json:"address"`
	Incarnation uint64 `json:"incarnation"`
}

// failed is a tuple that goes to the failed stream.
type failed struct {
	poison.Key
	poison.Failure
}

type spoutOrder struct {
	Task    checkpoint.TaskID `json:"task"`
	Control task.Control      `json:"control"`
}

type ackOrder struct {
	Task   checkpoint.TaskID `json:"task"`
	Batch  tuple.BatchID     `json:"batch"`
	Oldest tuple.BatchID     `json:"oldest"`
	Last   bool              `json:"last,omitempty"`
}

type errorReport struct {
	Component string `json:"component"`
	Task      int    `json:"task"`
	Error     string `json:"error"`
}

// event is a checkpoint.Event that tasks post.
type event struct {
	Type     string                   `json:"type"`
	Task     checkpoint.TaskID        `json:"task,omitempty"`
	Batch    tuple.BatchID            `json:"batch,omitempty"`
	Last     bool                     `json:"last,omitempty"`
	Snapshot *checkpoint.TaskSnapshot `json:"snapshot,omitempty"`
	Error    *failure                 `json:"error,omitempty"`
}

// encodeEvent returns an event and the generation that it is of, 0 for any.
func encodeEvent(ev checkpoint.Event) (event, tuple.Generation) {
	switch ev := ev.(type) {
	case checkpoint.TaskReady:
		return event{Type: "ready", Task: ev.Task}, ev.Generation
	case checkpoint.InputChanged:
		return event{Type: "input", Task: ev.Task, Batch: ev.After}, ev.Generation
	case checkpoint.SnapshotReported:
		return event{Type: "snapshot", Task: ev.Task, Batch: ev.Batch, Snapshot: &ev.Snapshot}, ev.Generation
	case checkpoint.StoreFailed:
		return event{Type: "store", Task: ev.Task, Error: encodeError(ev.Err)}, ev.Generation
	case checkpoint.SpoutFinished:
		return event{Type: "finished", Task: ev.Task}, ev.Generation
	case checkpoint.AckConfirmed:
		return event{Type: "acked", Task: ev.Task, Batch: ev.Batch, Last: ev.Last}, ev.Generation
	case checkpoint.TaskFailed:
		return event{Type: "failed", Task: ev.Task, Error: encodeError(ev.Err)}, ev.Generation
	case checkpoint.CheckpointRequested:
		return event{Type: "checkpoint"}, 0
	case checkpoint.Started, checkpoint.GenerationRaised, checkpoint.ManifestStored, checkpoint.ManifestFailed,
		checkpoint.HeadMoved, checkpoint.HeadFailed, checkpoint.Fenced, checkpoint.RestoreFailed,
		checkpoint.RollbackRequested, checkpoint.StopRequested, checkpoint.TimePassed: // the master's own
	}
	panic(fmt.Sprintf("broken invariant: a task has posted %T", ev))
}

// decode returns the event as it was posted.
func (e *event) decode(g tuple.Generation) (checkpoint.Event, error) {
	switch e.Type {
	case "ready":
		return checkpoint.TaskReady{Generation: g, Task: e.Task}, nil
	case "input":
		return checkpoint.InputChanged{Generation: g, Task: e.Task, After: e.Batch}, nil
	case "snapshot":
		if e.Snapshot == nil {
			return nil, errors.New("a snapshot is reported and none is there")
		}
		return checkpoint.SnapshotReported{Generation: g, Task: e.Task, Batch: e.Batch, Snapshot: *e.Snapshot}, nil
	case "store":
		return checkpoint.StoreFailed{Generation: g, Task: e.Task, Err: e.Error.decode()}, nil
	case "finished":
		return checkpoint.SpoutFinished{Generation: g, Task: e.Task}, nil
	case "acked":
		return checkpoint.AckConfirmed{Generation: g, Task: e.Task, Batch: e.Batch, Last: e.Last}, nil
	case "failed":
		return checkpoint.TaskFailed{Generation: g, Task: e.Task, Err: e.Error.decode()}, nil
	case "checkpoint":
		return checkpoint.CheckpointRequested{}, nil
	}
	return nil, fmt.Errorf("event of unknown type %q", e.Type)
}

// errTooLarge is wrapped when a message is larger than the other end takes.
var errTooLarge = errors.New("what a task hands in with a checkpoint, and what its errors say, must be smaller")

// failed returns what is said instead of a task's message that cannot be: that it has failed.
func (m message) failed(why error) message {
	ev, _ := encodeEvent(checkpoint.TaskFailed{Generation: m.Generation, Task: m.Event.Task, Err: why})
	m.Event = &ev
	return m
}

// write writes a message of at most limit bytes behind its length.
func write(w io.Writer, m message, limit int) error {
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode a %s message: %w", m.Kind, err)
	}
	if len(body) > limit {
		return fmt.Errorf("a %s message has %d bytes, and %d are allowed: %w", m.Kind, len(body), limit, errTooLarge)
	}
	buf := make([]byte, 4, 4+len(body))
	binary.BigEndian.PutUint32(buf, uint32(len(body)))
	_, err = w.Write(append(buf, body...))
	return err
}

// read reads a message of at most limit bytes.
func read(r io.Reader, limit int) (message, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return message{}, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > uint32(limit) {
		return message{}, fmt.Errorf("a message of %d bytes is announced, and %d are allowed", n, limit)
	}
	var m message
	body, err := readAll(r, int(n))
	if err == nil {
		err = json.Unmarshal(body, &m)
	}
	if err != nil {
		return message{}, fmt.Errorf("read a message: %w", err)
	}
	return m, nil
}

// readAll reads n bytes and takes memory for no more than has come: n is only a claim.
func readAll(r io.Reader, n int) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err == nil && len(body) < n {
		err = io.ErrUnexpectedEOF
	}
	return body, err
}
