//go:build !linux

package damage

import "testing"

func TestFullDisk(t *testing.T) {
	t.Skip("needs a file system of a few megabytes: run it on Linux, as root or below unshare -rm")
}
