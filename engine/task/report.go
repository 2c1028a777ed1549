package task

import (
	"fmt"
	"sync"
	"time"
)

// throttle lets through so many reported errors of a task in each interval.
type throttle struct {
	task *task
	most int
	each time.Duration

	mu      sync.Mutex // ReportError may be called from any goroutine
	until   time.Duration
	passed  int
	dropped int
}

func newThrottle(t *task) *throttle {
	return &throttle{
		task: t,
		most: t.conf.Int("topology.max.error.report.per.interval"),
		each: t.conf.Duration("topology.error.throttle.interval.secs"),
	}
}

// report passes an error on, or counts it if there were too many.
func (r *throttle) report(err error) {
	r.mu.Lock()
	now := r.task.env.Now()
	if now >= r.until {
		if r.dropped > 0 {
			err = fmt.Errorf("%w (%d more were not reported)", err, r.dropped)
		}
		r.until, r.passed, r.dropped = now+r.each, 0, 0
	}
	pass := r.passed < r.most
	if pass {
		r.passed++
	} else {
		r.dropped++
	}
	r.mu.Unlock()
	if pass {
		r.task.env.Reported(r.task.comp.ID, r.task.Index, err)
	}
}
