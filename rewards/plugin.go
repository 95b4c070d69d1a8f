package rewards

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

//go:embed driver.py
var driver string

// loadLimit is how long the imports of a Python reward may take: torch from a cold disk does
// not come near it, and a file that never ends does not hold a run for ever.
const loadLimit = 3 * time.Minute

// parsePython makes a reward of FILE.py:FUNCTION or MODULE:FUNCTION.
func parsePython(spec, arguments string) (Func, error) {
	at := strings.LastIndex(arguments, ":")
	if at < 0 && strings.HasSuffix(arguments, ".py") {
		return nil, fmt.Errorf("the function is missing; write py:%s:FUNCTION", arguments)
	}
	if at < 0 {
		return nil, errors.New("the file or the function is missing")
	}
	target, function := arguments[:at], arguments[at+1:]
	if !regexp.MustCompile(`^[\pL_][\pL\pN_]*$`).MatchString(function) {
		return nil, fmt.Errorf("%q is no function name; a weight stands in front: 0.5*py:%s:FUNCTION", function, target)
	}
	if strings.HasSuffix(target, ".py") {
		info, err := os.Stat(target)
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			return nil, fmt.Errorf("%s is a folder", target)
		}
	} else if !regexp.MustCompile(`^[\pL_][\pL\pN_]*(\.[\pL_][\pL\pN_]*)*$`).MatchString(target) {
		return nil, fmt.Errorf("%q is neither a .py file nor a module name", target)
	}
	python := os.Getenv("GRAFT_PYTHON")
	if python == "" {
		python = "python3"
	}
	// The driver runs under a file name of its own so that its frames can be told from the user's.
	const boot = "import sys; __file__ = '<graft reward driver>'; exec(compile(sys.argv.pop(1), __file__, 'exec'))"
	return &remote{name: spec, path: python, greets: true, ready: loadLimit, stderr: standardError(),
		args: []string{"-c", boot, driver, target, function, strconv.Itoa(os.Getpid())}}, nil
}

// parseCommand makes a reward of a command line.
func parseCommand(spec, arguments string) (Func, error) {
	words, err := splitWords(arguments)
	if err != nil {
		return nil, err
	}
	if len(words) == 0 {
		return nil, errors.New("the command is missing")
	}
	return &remote{name: spec, path: words[0], args: words[1:], stderr: standardError()}, nil
}

// splitWords splits at white space outside of '…' and "…". No other character is special,
// so that a path with backslashes stays whole.
func splitWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord, quote := false, rune(0)
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case strings.ContainsRune(" \t\r\n", r):
			if inWord {
				words = append(words, word.String())
				word.Reset()
			}
			inWord = false
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a %c is not closed", quote)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
