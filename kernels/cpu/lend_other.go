//go:build !linux

package cpu

import "runtime"

func whereabouts() (thread, core int32) { return 0, -1 }

func threadTime(int32) (int64, bool) { return 0, false }

func (m *mover) move(_, _ int32) bool { return false }

func freeCore(int32, []*worker, int64) (int32, bool) { return 0, false }

func leave() { runtime.Gosched() }
