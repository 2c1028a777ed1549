package s3store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/isobar-io/isobar/checkpoint"
)

// Bounds of how often an operation is tried. What fails for longer is the caller's to
// try again: the engine tells an outage by it.
const (
	attempts = 4
	pauseMin = 50 * time.Millisecond
	pauseMax = 2 * time.Second
)

// watch gives a request up when the server is silent for too long.
type watch struct {
	ctx      context.Context // of the request
	parent   context.Context
	cancel   context.CancelCauseFunc
	timer    *time.Timer
	patience time.Duration
}

func newWatch(parent context.Context, patience time.Duration) *watch {
	w := &watch{parent: parent, patience: patience}
	w.ctx, w.cancel = context.WithCancelCause(parent)
	w.timer = time.AfterFunc(patience, func() { w.cancel(errSilent) })
	return w
}

var errSilent = errors.New("the server was silent for too long")

// alive says that something has come or gone.
func (w *watch) alive() { w.timer.Reset(w.patience) }

// pause says that it is not the server's turn; alive ends that.
func (w *watch) pause() { w.timer.Stop() }

// end ends the request and says in the words of a Store what has become of it. If the
// caller's own context has ended the error says so, and otherwise never looks like it.
func (w *watch) end(err error) error {
	w.timer.Stop()
	silent := errors.Is(context.Cause(w.ctx), errSilent)
	w.cancel(nil)
	switch {
	case err == nil:
		return nil
	case w.parent.Err() != nil:
		return errors.Join(w.parent.Err(), err)
	case silent:
		return fmt.Errorf("%w: %v", errSilent, w.patience)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return errors.New("the server took too long: " + err.Error()) // time-outs of the network look like it
	}
	return explain(err)
}

// try calls f again as long as what it says may pass, but not for long.
func (s *Store) try(ctx context.Context, f func(w *watch) error) error {
	return s.again(ctx, func() error {
		w := newWatch(ctx, s.patience)
		return w.end(f(w))
	})
}

func (s *Store) again(ctx context.Context, f func() error) error {
	begun := time.Now()
	pause := pauseMin
	for n := 1; ; n++ {
		err := f()
		if err == nil || n == attempts || !passing(err) || ctx.Err() != nil || time.Since(begun) > s.patience*5/2 {
			return err
		}
		// With jitter, so that many tasks do not come back at once.
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(ctx.Err(), err)
		}
		pause = min(4*pause, pauseMax)
	}
}

// errFinal is in errors that only the user can do something about.
var errFinal = errors.New("trying again does not help")

// passing reports whether an error may not be there the next time.
func passing(err error) bool {
	for _, final := range []error{checkpoint.ErrNotFound, checkpoint.ErrExists, checkpoint.ErrDamaged, checkpoint.ErrHeadMoved, errFinal} {
		if errors.Is(err, final) {
			return false
		}
	}
	var r minio.ErrorResponse
	if !errors.As(err, &r) {
		return true // of the network, or of time
	}
	switch r.Code {
	case "RequestTimeout", "SlowDown", "IncompleteBody", "BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "ExpiredToken":
		return true // the bytes were verified before they were sent, so it was the way
	}
	switch r.StatusCode {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests, 0:
		return true
	case http.StatusNotImplemented:
		return false
	}
	return r.StatusCode >= 500
}

// refused reports whether the server says that a condition does not hold.
func refused(err error) bool {
	var r minio.ErrorResponse
	return errors.As(err, &r) && (r.StatusCode == http.StatusPreconditionFailed || r.Code == "PreconditionFailed")
}

// explain turns what the library says into errors of a Store that say what would help.
func explain(err error) error {
	var r minio.ErrorResponse
	if !errors.As(err, &r) {
		return explainNetwork(err)
	}
	final := func(hint string, args ...any) error {
		return fmt.Errorf("%w (%s): %s: %w", err, r.Code, fmt.Sprintf(hint, args...), errFinal)
	}
	switch r.Code {
	case "NoSuchKey":
		return checkpoint.ErrNotFound
	case "NoSuchBucket":
		return final("create bucket %q first, or correct checkpoint.store", r.BucketName)
	case "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken":
		return final("check the credentials and what they allow; %s", credentialsHint)
	case "ExpiredToken":
		return fmt.Errorf("%w (%s): the credentials have expired, renew them; %s", err, r.Code, credentialsHint)
	case "RequestTimeTooSkewed", "RequestExpired":
		return final("set the clock of this machine")
	case "AuthorizationHeaderMalformed", "InvalidRegion", "PermanentRedirect", "IllegalLocationConstraintException":
		if r.Region != "" {
			return final("the bucket is in region %q: set checkpoint.s3.region, or checkpoint.s3.endpoint, to it", r.Region)
		}
		return final("set checkpoint.s3.region to the region of the bucket")
	case "NotImplemented":
		return final("use a server that supports conditional writes")
	}
	if r.StatusCode == http.StatusNotFound {
		return checkpoint.ErrNotFound
	}
	return fmt.Errorf("%w (%d %s)", err, r.StatusCode, r.Code)
}

func explainNetwork(err error) error {
	var (
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		name      *net.DNSError
	)
	switch {
	case errors.As(err, &authority):
		return fmt.Errorf("%w: name the file of its authority in checkpoint.s3.ca.file: %w", err, errFinal)
	case errors.As(err, &host), errors.As(err, &invalid):
		return fmt.Errorf("%w: %w", err, errFinal)
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return fmt.Errorf("%w: checkpoint.s3.endpoint must begin with http:// there: %w", err, errFinal)
	case errors.As(err, &name) && name.IsNotFound:
		return fmt.Errorf("%w: correct checkpoint.s3.endpoint, or set checkpoint.s3.path.style if it is the bucket's name that is not known", err)
	}
	return err
}
