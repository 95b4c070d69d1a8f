package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
)

// between refuses an option's value outside of [low, high] with the remedy.
func between[T cmp.Ordered](name string, v, low, high T, remedy string) error {
	if v >= low && v <= high {
		return nil
	}
	return usage("--%s is %v, want %v to %v; %s", name, v, low, high, remedy)
}

// positive refuses what is not a finite number above 0.
func positive(name string, v float64, remedy string) error {
	if v > 0 && !math.IsInf(v, 0) {
		return nil
	}
	return usage("--%s is %v, want a finite number above 0; %s", name, v, remedy)
}

// finite refuses what is negative or not finite.
func finite(name string, v float64, remedy string) error {
	if v >= 0 && !math.IsInf(v, 0) {
		return nil
	}
	return usage("--%s is %v, want a finite number of at least 0; %s", name, v, remedy)
}

// oneOf refuses a value that is not in the list.
func oneOf(name, v string, list ...string) error {
	for _, x := range list {
		if v == x {
			return nil
		}
	}
	hint := ""
	if near, ok := nearestName(v, list); ok {
		hint = fmt.Sprintf("; did you mean %s?", near)
	}
	return usage("--%s is %q, want one of %v%s", name, v, list, hint)
}

// checks returns the first failure.
func checks(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

// needed refuses a missing option that has no default.
func needed(name, v, what string) error {
	if v != "" {
		return nil
	}
	return errUsage{errors.New("--" + name + " is missing: " + what)}
}

// unused refuses an option that was given where others leave it without effect.
func (c *console) unused(name string, without bool, why string) error {
	if c.flags[name] && without {
		return usage("--%s has no effect %s", name, why)
	}
	return nil
}
