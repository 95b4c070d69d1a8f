package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of /proc/stat: USER_HZ, 100 on every Linux that Go runs on.
const tick = time.Second / 100

// busy is the processor time that all processes have taken since the machine started, stolen time
// of a virtual machine included. ok is false where the system does not tell.
func busy() (total time.Duration, ok bool) {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, false
	}
	return parseBusy(string(raw))
}

// parseBusy reads the first line: user, nice, system, idle, iowait, irq, softirq, steal.
func parseBusy(stat string) (time.Duration, bool) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, false
	}
	var sum int64
	for i, f := range fields[1:9] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, false
		}
		if i != 3 && i != 4 { // idle, iowait
			sum += n
		}
	}
	return time.Duration(sum) * tick, true
}

// loadAverage is the system's own figure over one minute, "" where it has none.
func loadAverage() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(raw), " ")
	return first
}

// watch is the start of a measurement.
type watch struct {
	at   time.Time
	busy time.Duration
	own  time.Duration
	ok   bool
}

func startWatch() watch {
	b, ok := busy()
	return watch{time.Now(), b, ownTime(), ok}
}

// others is how many cores other processes kept busy since then, when the child that was measured
// took used; nil where the system does not tell.
func (w watch) others(used time.Duration) *float64 {
	b, ok := busy()
	if !ok || !w.ok {
		return nil
	}
	wall := time.Since(w.at)
	cores := max(0, float64(b-w.busy-(ownTime()-w.own)-used)/float64(wall))
	return &cores
}

// disturbed is the load, in cores, from which a row is marked: the clock ticks of an idle machine
// stay below it.
const disturbed = 0.1

func coresText(c *float64) string {
	if c == nil {
		return "?"
	}
	mark := ""
	if *c >= disturbed {
		mark = "*"
	}
	return fmt.Sprintf("%.2f%s", *c, mark)
}
