package rewards

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

func parseFormat(spec, arguments string) (Func, error) {
	set, err := parseSettings(arguments, []string{"style"}, "tags")
	if err != nil {
		return nil, err
	}
	tags := []string{"reasoning", "answer"}
	if set.has("tags") {
		if set.has("style") {
			return nil, errors.New("give either a style or tags")
		}
		if tags, err = tagNames(set.text("tags", "")); err != nil {
			return nil, err
		}
	} else {
		style, err := set.choice("style", "think", "think", "xml")
		if err != nil {
			return nil, err
		}
		if style == "think" {
			return &plain{name: spec, judge: func(s *Sample) (Score, error) { return indicator(thinks(s.Completion)), nil }}, nil
		}
	}
	return &plain{name: spec, judge: func(s *Sample) (Score, error) { return indicator(hasElements(s.Completion, tags)), nil }}, nil
}

// tagNames splits "a+b" and checks that each is a name that can stand in a tag.
func tagNames(list string) ([]string, error) {
	valid := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)
	tags := strings.Split(list, "+")
	seen := map[string]bool{}
	for _, tag := range tags {
		if !valid.MatchString(tag) {
			return nil, fmt.Errorf("tag %q is no element name; write tags=reasoning+answer, without angle brackets", tag)
		}
		if seen[tag] {
			return nil, fmt.Errorf("tag %q is given twice; each element may occur once", tag)
		}
		seen[tag] = true
	}
	return tags, nil
}

// thinks is TRL's think_format_reward: the text begins with <think>, holds no second one,
// and closes it.
func thinks(text string) bool {
	inner, ok := strings.CutPrefix(text, "<think>")
	return ok && !strings.Contains(inner, "<think>") && strings.Contains(inner, "</think>")
}

// hasElements reports whether text is exactly the elements of tags in order, each once,
// with nothing but white space around and between them.
func hasElements(text string, tags []string) bool {
	for _, tag := range tags {
		if strings.Count(text, "<"+tag+">") != 1 || strings.Count(text, "</"+tag+">") != 1 {
			return false
		}
	}
	rest := strings.TrimSpace(text)
	for _, tag := range tags {
		inner, ok := strings.CutPrefix(rest, "<"+tag+">")
		if !ok {
			return false
		}
		_, after, ok := strings.Cut(inner, "</"+tag+">")
		if !ok {
			return false
		}
		rest = strings.TrimSpace(after)
	}
	return rest == ""
}

func parseRegex(spec, arguments string) (Func, error) { return pattern(spec, arguments, "%s") }

func parseRegexFull(spec, arguments string) (Func, error) {
	return pattern(spec, arguments, `(?s)\A(?:%s)\z`)
}

// pattern makes a reward of a regular expression put into a frame. Go's expressions run in
// time linear in the text, so a pattern cannot stall a run.
func pattern(spec, text, frame string) (Func, error) {
	if text == "" {
		return nil, errors.New("the pattern is missing")
	}
	if _, err := regexp.Compile(text); err != nil {
		return nil, fmt.Errorf("%w (RE2 syntax: no look-around, no back-references)", err)
	}
	expression, err := regexp.Compile(fmt.Sprintf(frame, text))
	if err != nil {
		return nil, err
	}
	return &plain{name: spec, judge: func(s *Sample) (Score, error) {
		return indicator(expression.MatchString(s.Completion)), nil
	}}, nil
}

func parseExact(spec, arguments string) (Func, error) {
	set, err := parseSettings(arguments, []string{"column"}, "normalize")
	if err != nil {
		return nil, err
	}
	how, err := set.choice("normalize", "space", "space", "case", "off")
	if err != nil {
		return nil, err
	}
	normal := func(text string) string { return text }
	switch how {
	case "space":
		normal = func(text string) string { return strings.Join(strings.Fields(text), " ") }
	case "case":
		normal = func(text string) string { return strings.ToLower(strings.Join(strings.Fields(text), " ")) }
	}
	gold := goldColumn{spec, set.text("column", "")}
	return &plain{name: spec, reads: gold.present, judge: func(s *Sample) (Score, error) {
		want, err := gold.of(s)
		if err != nil {
			return Score{}, err
		}
		return indicator(normal(s.Completion) == normal(want)), nil
	}}, nil
}
