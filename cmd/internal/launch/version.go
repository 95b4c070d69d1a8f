package launch

import (
	"runtime/debug"
	"strings"
)

// Version is the module's version, the revision and the version of Go, as the Go tool recorded them.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	text := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 && !strings.Contains(text, s.Value[:12]) {
			text += " " + s.Value[:12]
		}
	}
	return strings.TrimSpace(text + " " + info.GoVersion)
}
