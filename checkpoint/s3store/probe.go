package s3store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/isobar-io/isobar/checkpoint"
)

// probeName is the object that shows, at every start, that the server heeds conditions
// and checksums. It stays: there is no moment at which all who look at it are done.
const probeName = "probe"

// probe writes the object on conditions that do not hold, and with another checksum. A
// server that does not refuse cannot keep two masters apart, or would store what was
// altered on the way.
func (s *Store) probe(ctx context.Context) error {
	var none, wrong minio.PutObjectOptions
	none.SetMatchETagExcept("*")
	wrong.SetMatchETag("00000000000000000000000000000000")
	sum := checkpoint.CRC([]byte(probeName))
	err := s.putProbe(ctx, none, sum, refused)
	if err == nil { // it was not there before
		err = s.putProbe(ctx, none, sum, refused)
	}
	if err := ignored(err, refused, "If-None-Match, so objects could be overwritten"); err != nil {
		return err
	}
	err = s.putProbe(ctx, wrong, sum, refused)
	if err := ignored(err, refused, "If-Match, so two writers could both move the head"); err != nil {
		return err
	}
	err = s.putProbe(ctx, minio.PutObjectOptions{}, ^sum, mismatch)
	return ignored(err, mismatch, "x-amz-checksum-crc32c, so it would store what was altered on the way")
}

// putProbe does not try again when the answer is of the kind that it should be.
func (s *Store) putProbe(ctx context.Context, o minio.PutObjectOptions, sum uint32, right func(error) bool) error {
	return s.try(ctx, func(w *watch) error {
		_, err := s.putOnce(w, s.prefix+probeName, strings.NewReader(probeName), int64(len(probeName)), sum, o)
		if right(err) {
			return fmt.Errorf("%w: %w", err, errFinal)
		}
		return err
	})
}

// ignored returns nil if the server has answered as it should, with an error of a kind.
func ignored(err error, kind func(error) bool, what string) error {
	switch {
	case err == nil:
		return fmt.Errorf("the server ignores %s: use one that heeds conditions and checksums of writes", what)
	case kind(err):
		return nil
	}
	return err
}

// mismatch reports whether the server says that bytes have another checksum than was
// named.
func mismatch(err error) bool {
	var r minio.ErrorResponse
	return errors.As(err, &r) && r.StatusCode == http.StatusBadRequest && (r.Code == "BadDigest" || r.Code == "XAmzContentChecksumMismatch")
}
