//go:build unix && !linux

package child

import (
	"os/exec"
	"syscall"
)

// isolate gives the child a process group of its own, so that a terminal's interrupt passes
// it by and a kill reaches all it started. When this process dies, the end of its stdin
// tells the child.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
