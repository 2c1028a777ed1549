package txn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// TransactionID names one transaction of a sink, for ever: a batch that is made again
// after a rollback has another generation, and a run that was started from a copied
// checkpoint another name.
type TransactionID struct {
	Run        string // name of the line of checkpoints
	Component  string
	Task       int // index within the component
	Generation Generation
	Batch      BatchID
}

// String returns the id as text that is fit for the name of a file or a table key: its
// fields in order, with a dot between two. ParseTransactionID reads it back.
func (id TransactionID) String() string {
	return fmt.Sprintf("%s.%s.%d.%d.%d", id.Run, id.Component, id.Task, id.Generation, id.Batch)
}

// ParseTransactionID returns the id that String made s of.
func ParseTransactionID(s string) (TransactionID, error) {
	run, rest, ok := strings.Cut(s, ".")
	parts := strings.Split(rest, ".")
	n := len(parts) - 3 // the component may have dots in it
	if !ok || n < 1 {
		return TransactionID{}, fmt.Errorf("%q is not the id of a transaction: want run.component.task.generation.batch", s)
	}
	id := TransactionID{Run: run, Component: strings.Join(parts[:n], ".")}
	task, err1 := strconv.Atoi(parts[n])
	generation, err2 := strconv.ParseUint(parts[n+1], 10, 64)
	batch, err3 := strconv.ParseUint(parts[n+2], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return TransactionID{}, fmt.Errorf("%q is not the id of a transaction: %w", s, err)
	}
	id.Task, id.Generation, id.Batch = task, Generation(generation), BatchID(batch)
	return id, nil
}

// transaction is what a sink's handle holds.
type transaction struct {
	id   TransactionID
	data []byte
}

// Handles of sinks are encoded as
//
//	1 byte    version, 1
//	text      run, component: each a uvarint length and the bytes
//	uvarint   task, generation, batch
//	rest      the sink's own data
const transactionVersion = 1

func (t transaction) encode() []byte {
	b := []byte{transactionVersion}
	for _, s := range []string{t.id.Run, t.id.Component} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	for _, n := range []uint64{uint64(t.id.Task), uint64(t.id.Generation), uint64(t.id.Batch)} {
		b = binary.AppendUvarint(b, n)
	}
	return append(b, t.data...)
}

// Transaction returns the id of the transaction that a handle stands for. ok is false for
// a batch without output, and for the handles of bolts that are neither a [TwoPhaseSink]
// nor a [StagedSink].
func (h Handle) Transaction() (id TransactionID, ok bool) {
	t, err := decodeTransaction(h.Data)
	return t.id, err == nil && t.id.Batch == h.Batch && t.id.Generation == h.Generation
}

var errHandle = errors.New("the handle of a transaction is damaged")

func decodeTransaction(b []byte) (transaction, error) {
	var t transaction
	if len(b) == 0 || b[0] != transactionVersion {
		return t, errHandle
	}
	b = b[1:]
	number := func() (n uint64, ok bool) {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			return 0, false
		}
		b = b[size:]
		return n, true
	}
	for _, s := range []*string{&t.id.Run, &t.id.Component} {
		n, ok := number()
		if !ok || n > uint64(len(b)) {
			return t, errHandle
		}
		*s, b = string(b[:n]), b[n:]
	}
	var nums [3]uint64
	for i := range nums {
		n, ok := number()
		if !ok || n > 1<<62 {
			return t, errHandle
		}
		nums[i] = n
	}
	t.id.Task, t.id.Generation, t.id.Batch = int(nums[0]), Generation(nums[1]), BatchID(nums[2])
	t.data = b
	return t, nil
}
