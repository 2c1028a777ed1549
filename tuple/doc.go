// Package tuple holds the vocabulary that every other package of Isobar speaks:
// values, tuples, the frames they travel in, the marks between them, and the one
// hash that decides where a key lives.
//
// It imports only the standard library and starts no goroutine.
package tuple

// BatchID numbers the batches of a region. 0 is the initial state and is never
// emitted; the first batch of a fresh run is 1; a run restored from batch n goes
// on with n+1.
type BatchID uint64

// Generation numbers the incarnations of a run. It goes up with every start and
// every rollback; whatever carries an older generation than its receiver is void.
type Generation uint64
