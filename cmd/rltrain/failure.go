package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"graft/rl"
)

// diskFull is what Windows says where others say ENOSPC.
const diskFull = syscall.Errno(112)

// noSpace tells whether an error is that of a full disk.
func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || runtime.GOOS == "windows" && errors.Is(err, diskFull)
}

// spaceText is the remedy of a full disk; "" for other errors. run says what the run under way
// needs, "" if there is none.
func spaceText(err error, run string) string {
	if !noSpace(err) {
		return ""
	}
	text := "\nthe disk is full: free space where it was to be written"
	var path *fs.PathError
	if errors.As(err, &path) {
		text = "\nthe disk is full: free space where " + filepath.Dir(path.Path) + " lies"
	}
	if run == "" {
		return text + ", or name another place"
	}
	return text + "; " + run
}

// room says what a run goes on to write, and how to go on with it.
func (t *training) room() string {
	bytes := rl.AdamWBytes(t.sizes.lengths...)
	for _, n := range t.sizes.lengths {
		bytes += 4 * int64(n)
	}
	return fmt.Sprintf("each checkpoint of %s takes %s more. Then go on with: %s", t.log.Dir(), sized(bytes), resumeLine(t.log.Dir()))
}

// diverged tells whether a step failed because numbers left the finite ones. The sampler's kernels
// say so in words only.
func diverged(err error) bool {
	return errors.Is(err, rl.ErrDiverged) || strings.Contains(err.Error(), "logits are not finite")
}

// divergedText is the remedy of a run that diverged. Resuming it would compute the same again.
func (t *training) divergedText() string {
	clip := fmt.Sprintf("now %g", t.optim.MaxGradNorm)
	if t.optim.MaxGradNorm == 0 {
		clip = "now off; 1 is usual"
	}
	text := fmt.Sprintf("training diverged, and resuming would repeat it: begin again with a lower --learning-rate (now %g) or --max-grad-norm (%s)", t.optim.LearningRate, clip)
	if !t.lora.Full {
		text += ", if you like from an adapter of before: --adapter " + quoted(filepath.Join(t.log.Dir(), "checkpoint-N"))
	}
	return text
}
