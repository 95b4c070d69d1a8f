//go:build unix

package child

import (
	"os/exec"
	"syscall"
)

// group is the process group of a child, whose number is the child's.
type group int

// groupOf names the group of a child that isolate has set up.
func groupOf(cmd *exec.Cmd) group { return group(cmd.Process.Pid) }

// kill ends every process of the group. None being left is no error.
func (g group) kill() { _ = syscall.Kill(-int(g), syscall.SIGKILL) }

func (g group) release() {}
