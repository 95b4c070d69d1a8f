// Package child runs a long-lived program that answers one line for each line it is sent,
// and makes sure that neither it nor what it starts outlives its owner.
//
// It knows lines, deadlines and exit statuses; what a line means is the caller's business.
// A Process owns its pipes and goroutines until it has ended.
package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Config says what to run.
type Config struct {
	Path    string    // the program, looked up in PATH
	Args    []string  // without the program's name
	Env     []string  // added to this process's environment
	Prefix  string    // stands before every line of the child's stderr
	Stderr  io.Writer // where these lines go
	MaxLine int       // bytes; a longer answer ends the child
}

// Exit says how a child ended that should not have.
type Exit struct {
	Status string   // "exit status 1", "signal: segmentation fault"
	Tail   []string // its last lines on stderr
}

// Error is the status and the last lines on stderr.
func (e *Exit) Error() string {
	if len(e.Tail) == 0 {
		return fmt.Sprintf("the child process ended (%s) and wrote nothing to stderr", e.Status)
	}
	return fmt.Sprintf("the child process ended (%s); its last words:\n  %s", e.Status, strings.Join(e.Tail, "\n  "))
}

// ErrLineTooLong means that a child's answer passed Config.MaxLine.
var ErrLineTooLong = errors.New("line too long")

const (
	closeGrace = 2 * time.Second        // for a child to end by itself once its stdin is closed
	exitGrace  = 500 * time.Millisecond // between the end of its stdout and its exit, and for the rest of its stderr
	tailLines  = 20
)

// Process is a running child. One goroutine may use it at a time; Close may come from any.
type Process struct {
	stdin  *os.File
	lines  chan []byte // closed at the end of the child's stdout
	broken error       // why lines was closed, if not by the end; read after lines is closed
	stop   chan struct{}
	once   sync.Once
	kill   bool          // stop means at once; set before stop is closed
	done   chan struct{} // closed when the child has been reaped and its stderr read
	status string        // read after done
	sent   chan struct{} // closed when the last line is written; of Call alone
	tail   *tail
}

// Start runs the program.
func Start(config Config) (*Process, error) {
	path, err := exec.LookPath(config.Path)
	if err != nil {
		return nil, err
	}
	var opened []*os.File
	fail := func(err error) (*Process, error) {
		for _, f := range opened {
			f.Close()
		}
		return nil, err
	}
	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			return fail(err)
		}
		opened = append(opened, r, w)
	}
	cmd := exec.Command(path, config.Args...)
	cmd.Env = append(os.Environ(), config.Env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = opened[0], opened[3], opened[5]
	isolate(cmd)

	p := &Process{
		stdin: opened[1],
		lines: make(chan []byte, 1),
		stop:  make(chan struct{}),
		done:  make(chan struct{}),
		tail:  &tail{},
	}
	started := make(chan error)
	heard := make(chan struct{})
	go p.own(cmd, started, heard, opened[2], opened[4])
	if err := <-started; err != nil {
		return fail(err)
	}
	for _, i := range []int{0, 3, 5} {
		opened[i].Close() // the child has its own copies
	}
	go p.read(opened[2], config.MaxLine)
	go func() {
		defer close(heard)
		p.tail.pump(opened[4], config.Prefix, config.Stderr)
	}()
	return p, nil
}

// own starts the child, waits until it should end, and reaps it. It stays on one thread:
// Linux sends the parent-death signal when the thread that started the child ends.
func (p *Process) own(cmd *exec.Cmd, started chan<- error, heard <-chan struct{}, stdout, stderr *os.File) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	if err != nil {
		started <- err
		return
	}
	group := groupOf(cmd)
	started <- nil
	<-p.stop

	reaped := make(chan struct{})
	if p.kill {
		group.kill()
	} else {
		go func() {
			select {
			case <-reaped:
			case <-time.After(exitGrace):
				group.kill()
			}
		}()
	}
	err = cmd.Wait()
	close(reaped)
	p.status = "exit status 0"
	if err != nil {
		p.status = err.Error()
	}
	group.kill() // what the child left behind
	select {
	case <-heard:
	case <-time.After(exitGrace):
	}
	p.stdin.Close()
	stdout.Close()
	stderr.Close()
	group.release()
	close(p.done)
}

// end lets own reap the child: at once if kill, else after a moment to exit by itself.
func (p *Process) end(kill bool) {
	p.once.Do(func() {
		p.kill = kill
		close(p.stop)
	})
}

// read passes on the lines of the child's stdout until it ends.
func (p *Process) read(stdout io.Reader, limit int) {
	defer p.end(false)
	defer close(p.lines)
	buffered := bufio.NewReaderSize(stdout, 64<<10)
	for {
		line, err := readLine(buffered, limit)
		if err != nil {
			if errors.Is(err, ErrLineTooLong) {
				p.broken = err
				p.end(true)
			}
			return
		}
		select {
		case p.lines <- line:
		case <-p.stop:
			return
		}
	}
}

// readLine reads up to a newline, which it drops, and at most limit bytes.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, fmt.Errorf("%w: more than %d bytes", ErrLineTooLong, limit)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// Call sends a line, which write writes piece by piece and to which Call adds the newline, and returns
// the child's next line. When ctx ends first the child is killed with all it started and the cause is
// ctx's. A child that ended gives an *Exit. An error of write that is its own leaves half a line
// behind: write ends ctx then.
func (p *Process) Call(ctx context.Context, write func(io.Writer) error) ([]byte, error) {
	before, sent := p.sent, make(chan struct{})
	p.sent = sent
	go func() {
		defer close(sent)
		if before != nil {
			<-before // a child may answer what it has not read
		}
		// An error here means that the child is gone, which the other side of the
		// conversation reports better. Killing the child unblocks a write.
		w := bufio.NewWriterSize(p.stdin, 64<<10)
		if write(w) == nil {
			_ = w.WriteByte('\n')
			_ = w.Flush()
		}
	}()
	return p.Next(ctx)
}

// Next returns the child's next line without sending one, under the rules of Call.
func (p *Process) Next(ctx context.Context) ([]byte, error) {
	select {
	case answer, ok := <-p.lines:
		if ok {
			return answer, nil
		}
		<-p.done
		if p.broken != nil {
			return nil, p.broken
		}
		return nil, &Exit{Status: p.status, Tail: p.tail.last()}
	case <-ctx.Done():
		p.Kill()
		return nil, ctx.Err()
	}
}

// Kill ends the child and all it started, at once, and waits until they are gone.
func (p *Process) Kill() {
	p.end(true)
	<-p.done
}

// Close closes the child's stdin, gives it a moment to end by itself, and kills what is left.
func (p *Process) Close() {
	p.stdin.Close()
	select {
	case <-p.done:
	case <-time.After(closeGrace):
		p.Kill()
	}
}

// Tail is the child's last lines on stderr so far.
func (p *Process) Tail() []string { return p.tail.last() }

// tail keeps the last lines of stderr for error messages.
type tail struct {
	mu    sync.Mutex
	lines []string
}

// pump copies lines to out behind a prefix until r ends. A line is cut at 8 KiB.
func (t *tail) pump(r io.Reader, prefix string, out io.Writer) {
	buffered := bufio.NewReaderSize(r, 8<<10)
	for {
		part, _, err := buffered.ReadLine()
		if err != nil {
			return
		}
		line := string(part)
		t.mu.Lock()
		t.lines = append(t.lines, line)
		if len(t.lines) > tailLines {
			t.lines = t.lines[1:]
		}
		t.mu.Unlock()
		// A closed stderr must not end the reward.
		_, _ = fmt.Fprintf(out, "%s%s\n", prefix, line)
	}
}

func (t *tail) last() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.lines...)
}
