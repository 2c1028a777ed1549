package s3test

import (
	"os/exec"
	"syscall"
)

// diesWithUs has the kernel kill a process when the thread that starts it ends, which it
// does with its own process, however that ends.
func diesWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
