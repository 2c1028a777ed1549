package master

import "errors"

// ErrStoreUnreachable is wrapped by the error of a run that did not begin because the
// checkpoint store did not answer as it should: another try may do better.
var ErrStoreUnreachable = errors.New("the checkpoint store cannot be used now")

// Unreachable returns err with ErrStoreUnreachable wrapped as well.
func Unreachable(err error) error { return unreachable{err} }

type unreachable struct{ error }

func (u unreachable) Unwrap() []error { return []error{u.error, ErrStoreUnreachable} }
