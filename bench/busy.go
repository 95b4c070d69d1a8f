package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// spinCommand makes this binary a process that never rests: the neighbour of some rows.
const spinCommand = "spin"

// spinner is that process, on the cores of the comparison and at the same priority.
type spinner struct {
	cmd   *exec.Cmd
	input io.Closer
	ended bool
	used  time.Duration
}

// startSpinner returns once the process is up and busy.
func startSpinner(ctx context.Context) (*spinner, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, spinCommand)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2") // one thread spins, one waits for the end of input
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("the busy process: %w", err)
	}
	s := &spinner{cmd: cmd, input: in}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		s.stop()
		return nil, fmt.Errorf("the busy process did not start: %w", err)
	}
	return s, nil
}

// stop ends the process and tells the processor time that it took. A second call repeats the answer.
func (s *spinner) stop() (used time.Duration, err error) {
	if s.ended {
		return s.used, nil
	}
	s.ended = true
	s.input.Close()
	if err = s.cmd.Wait(); err != nil {
		return 0, fmt.Errorf("the busy process: %w", err)
	}
	s.used = cpuTime(s.cmd.ProcessState)
	return s.used, nil
}

// spin is what the process does: arithmetic on registers until its input ends. The end of the parent
// ends it too.
func spin(in io.Reader, out io.Writer) error {
	over := make(chan struct{})
	go func() {
		io.Copy(io.Discard, in) // whatever ends the input ends the spinning
		close(over)
	}()
	if _, err := out.Write([]byte{'\n'}); err != nil {
		return err
	}
	x := uint64(1)
	for {
		select {
		case <-over:
			if x == 0 { // never: the work is not dead code
				return fmt.Errorf("the sequence reached zero")
			}
			return nil
		default:
		}
		for range 1 << 16 {
			x = x*6364136223846793005 | 1
		}
	}
}
