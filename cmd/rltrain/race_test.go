//go:build race

package main

// raced tells whether the race detector is in the executable.
const raced = true
