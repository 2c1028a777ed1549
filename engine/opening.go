package engine

import (
	"context"
	"time"
)

// stopPatience is how long a run that is stopped still waits for its storage.
const stopPatience = 500 * time.Millisecond

// untilOpened returns the context in which the storage of a run is opened, and what ends
// it. A run that is stopped meanwhile still comes up, to publish what is committed, but
// does not wait for a store that does not answer.
func untilOpened(ctx context.Context) (opening context.Context, opened func()) {
	opening, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(stopPatience, cancel)
		<-opening.Done()
		timer.Stop()
	})
	return opening, func() {
		stop()
		cancel()
	}
}
