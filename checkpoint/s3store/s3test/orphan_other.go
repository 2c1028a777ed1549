//go:build !linux

package s3test

import "os/exec"

// diesWithUs does nothing: a test that panics leaves the process running here.
func diesWithUs(*exec.Cmd) {}
