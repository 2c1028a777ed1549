//go:build unix

package supervisor

import (
	"os"
	"os/exec"
	"syscall"
)

// detach gives a process a session, and so a process group, of its own.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
}

func terminate(p *os.Process) error  { return p.Signal(syscall.SIGTERM) }
func dumpStacks(p *os.Process) error { return p.Signal(syscall.SIGQUIT) }

// kill ends a process and what it has started. The group has the pid of its leader, and
// keeps it as long as it has members.
func kill(p *os.Process) error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	killGroup(p)
	return nil
}

// killGroup ends what is left of a process's group.
func killGroup(p *os.Process) {
	syscall.Kill(-p.Pid, syscall.SIGKILL) //nolint:errcheck // there is nobody left as a rule
}
