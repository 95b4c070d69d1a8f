package openai

import "golang.org/x/sys/unix"

// hungUp reports whether the other side closed the connection of a file descriptor, wholly or its
// sending half. It reads nothing and does not wait. POLLRDHUP also sees the end of a TLS stream,
// which a peek at the data does not.
func hungUp(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
}
