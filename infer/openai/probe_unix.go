//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package openai

import "golang.org/x/sys/unix"

// hungUp reports whether the other side closed the connection of a file descriptor: a peek that
// finds the end of the data. It consumes nothing and does not wait.
func hungUp(fd uintptr) bool {
	var one [1]byte
	n, _, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	switch err {
	case nil:
		return n == 0
	case unix.EAGAIN, unix.EINTR:
		return false
	}
	return true
}
