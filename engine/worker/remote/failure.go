package remote

import (
	"errors"
	"fmt"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/engine/poison"
	"github.com/isobar-io/isobar/engine/task"
	"github.com/isobar-io/isobar/txn"
)

// failure is an error with what a topology master must know of it.
type failure struct {
	Text     string    `json:"text"`
	Fatal    bool      `json:"fatal,omitempty"`
	Damaged  bool      `json:"damaged,omitempty"`
	NotFound bool      `json:"notFound,omitempty"`
	Newer    bool      `json:"newer,omitempty"`
	Panic    *panicked `json:"panic,omitempty"`
	Tuple    *failedOn `json:"tuple,omitempty"`
}

type panicked struct {
	Where string `json:"where"`
	Value string `json:"value"`
	Stack string `json:"stack"`
}

type failedOn struct {
	Component string     `json:"component"`
	Key       poison.Key `json:"key"`
	Text      string     `json:"text"`
}

func encodeError(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{
		Text:     err.Error(),
		Fatal:    txn.IsFatal(err),
		Damaged:  errors.Is(err, checkpoint.ErrDamaged),
		NotFound: errors.Is(err, checkpoint.ErrNotFound),
		Newer:    errors.Is(err, checkpoint.ErrNewer),
	}
	var p *task.PanicError
	if errors.As(err, &p) {
		f.Panic = &panicked{p.Where, fmt.Sprint(p.Value), string(p.Stack)}
	}
	var t *poison.TupleError
	if errors.As(err, &t) {
		f.Tuple = &failedOn{t.Component, t.Key, t.Err.Error()}
	}
	return f
}

// decode returns an error with the text and the nature of the one that was encoded.
func (f *failure) decode() error {
	if f == nil {
		return errors.New("no reason was given")
	}
	e := &remoteError{text: f.Text}
	add := func(is bool, err error) {
		if is {
			e.is = append(e.is, err)
		}
	}
	add(f.Fatal, txn.Fatal(errors.New(f.Text)))
	add(f.Damaged, checkpoint.ErrDamaged)
	add(f.NotFound, checkpoint.ErrNotFound)
	add(f.Newer, checkpoint.ErrNewer)
	if p := f.Panic; p != nil {
		e.is = append(e.is, &task.PanicError{Where: p.Where, Value: p.Value, Stack: []byte(p.Stack)})
	}
	if t := f.Tuple; t != nil {
		e.is = append(e.is, &poison.TupleError{Component: t.Component, Key: t.Key, Err: errors.New(t.Text)})
	}
	return e
}

// remoteError is an error that has come from another process.
type remoteError struct {
	text string
	is   []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.is }
