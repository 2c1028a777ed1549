package cli

import "errors"

// Exit codes of the program.
const (
	exitOK        = 0
	exitFailed    = 1 // the command was understood and failed
	exitUsage     = 2 // the command line is wrong
	exitDamaged   = 3 // verify: something is damaged or missing
	exitDifferent = 4 // diff: the checkpoints are not the same
)

// usageError says that the command line is wrong.
type usageError struct{ error }

// Unwrap returns what is wrong.
func (e usageError) Unwrap() error { return e.error }

// Outcomes that are no failures of the command; what they say is printed already.
var (
	errDamaged   = errors.New("something is damaged or missing")
	errDifferent = errors.New("the checkpoints differ")
)

// exitCode returns the code for what a command has returned.
func exitCode(err error, understood bool) int {
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case !understood || errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, errDamaged):
		return exitDamaged
	case errors.Is(err, errDifferent):
		return exitDifferent
	}
	return exitFailed
}
