package child

import (
	"os/exec"
	"syscall"
)

// isolate gives the child a process group of its own, so that a terminal's interrupt passes
// it by and a kill reaches all it started, and has the kernel kill it when this process dies.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
