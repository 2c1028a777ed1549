// Package arch has no code, only tests: they parse the whole tree and hold it to
// the rules that the compiler does not know.
//
//   - imports point down only, and each driver has the one place that may import it;
//   - the cores are pure: no goroutine, channel, clock, randomness, lock or I/O;
//   - goroutines start only where something waits for them, and nothing sleeps;
//   - files and functions stay short, exported names are documented, and no package
//     or type has a name that says nothing;
//   - nothing mentions a place outside the repository or puts work off.
//
// A file over 500 lines needs a comment "long: why" above its package clause, a
// function over 70 lines one in its doc comment.
package arch
