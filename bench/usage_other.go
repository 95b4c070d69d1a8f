//go:build !unix

package main

import (
	"os"
	"time"
)

// ownTime is not needed where the load of others is unknown.
func ownTime() time.Duration { return 0 }

// peakBytes is unknown.
func peakBytes(*os.ProcessState) int64 { return 0 }
