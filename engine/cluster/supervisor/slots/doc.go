// Package slots decides what a supervisor does with its processes: which to start, to
// end, to start again, and when. It is pure: what has happened goes in as an Event, what
// is to be done comes out as Actions, and time is a value.
//
// What the processes should be follows from assignments, the orders. An assignment that
// has vanished is no order to stop: the coordination store may have lost it. To stop is
// what these say, and nothing else:
//
//   - an assignment that exists and does not name the slot,
//
//   - an assignment with Stop, also after it was removed,
//
//   - an assignment that was removed from a store which is known to be the same as before
//     by its mark, or whose name belongs to another topology by now.
//
//     Prepare          Start          process runs
//     Waiting ────────► Preparing ─────► Starting ─────► Running ──┬─► Dumping ─┐
//     ▲ ▲                │                                      │            ├─► Killing
//     │ └────────────────┘ failed                               └─► Ending ──┘      │
//     │                                                                │            │
//     └───────────────── ended, and is wanted ◄────────────────────────┴────────────┘
//
// From wherever a process has ended it goes to Cleaning and is forgotten if it is not
// wanted, and to Done if it has ended by itself with cluster.ExitDone.
package slots
