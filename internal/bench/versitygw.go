package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/isobar-io/isobar/checkpoint"
	"github.com/isobar-io/isobar/checkpoint/s3store"
)

// versityVersion is that of the versitygw that serves S3 here.
const versityVersion = "v1.8.0"

// versityProgram returns the path of versitygw; an error says how to get it.
func versityProgram() (string, error) {
	path := os.Getenv("ISOBAR_VERSITYGW")
	if path == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		path = filepath.Join(home, ".cache", "isobar-tools", "versitygw-"+versityVersion)
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("there is no S3 server: %w; get one with `go install github.com/versity/versitygw/cmd/versitygw@%s`, and name it in ISOBAR_VERSITYGW", err, versityVersion)
	}
	return path, nil
}

// The one bucket of the server, and who may use it.
const (
	versityBucket = "bench"
	versityAccess = "bench-access"
	versitySecret = "bench-secret"
)

// versity is a server of S3 on this machine, in a process of its own.
type versity struct {
	dir      string // its buckets
	endpoint string
	server   *exec.Cmd
	ended    chan struct{}
	log      strings.Builder // of the server, to be read when it has ended
	restore  []func() error  // of the environment
}

// startVersity serves a new folder.
func startVersity(ctx context.Context, program, dir string) (*versity, error) {
	if err := os.MkdirAll(filepath.Join(dir, versityBucket), 0o777); err != nil {
		return nil, err
	}
	var errs []error
	// Another may be given the same port before the server listens there.
	for range 5 {
		v := &versity{dir: dir}
		err := v.start(ctx, program)
		if err == nil {
			return v, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func (v *versity) start(ctx context.Context, program string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return err
	}
	v.endpoint, v.ended = "http://"+address, make(chan struct{})
	v.server = exec.Command(program, "--access", versityAccess, "--secret", versitySecret, "--port", address, "--keep-alive", "--quiet", "posix", v.dir)
	v.server.Stderr = &v.log
	if err := v.server.Start(); err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	go func() {
		_ = v.server.Wait() // it is killed
		close(v.ended)
		cancel()
	}()
	if err := v.answers(ctx); err != nil {
		v.stop()
		return fmt.Errorf("%s at %s does not answer: %w; it says: %s", program, address, err, v.log.String())
	}
	return nil
}

// answers waits until the server answers.
func (v *versity) answers(ctx context.Context) error {
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, v.endpoint, nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(r); err == nil {
			return resp.Body.Close()
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stop ends the server, and gives the environment back.
func (v *versity) stop() {
	_ = v.server.Process.Kill() // it may have ended
	<-v.ended
	for _, restore := range v.restore {
		_ = restore() // a name that could be set can be set again
	}
}

// place returns the bucket as a place. The store takes who it is from the environment.
func (v *versity) place() (place, error) {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": versityAccess, "AWS_SECRET_ACCESS_KEY": versitySecret, "AWS_SESSION_TOKEN": "",
	} {
		old, set := os.LookupEnv(name)
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
		v.restore = append(v.restore, func() error {
			if set {
				return os.Setenv(name, old)
			}
			return os.Unsetenv(name)
		})
	}
	bucket, err := s3store.NewPlace(s3store.Options{Bucket: versityBucket, Endpoint: v.endpoint, PathStyle: true})
	return s3Place{bucket, filepath.Join(v.dir, versityBucket)}, err
}

// s3Place is a bucket whose folders are folders of this machine.
type s3Place struct {
	bucket *s3store.Place
	dir    string
}

func (p s3Place) open(ctx context.Context, folder string) (checkpoint.Store, error) {
	return p.bucket.Open(ctx, folder)
}

func (p s3Place) remove(folder string) error { return os.RemoveAll(filepath.Join(p.dir, folder)) }
