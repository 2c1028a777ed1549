package main

import (
	"syscall"
	"time"
)

// cpuTime returns how long the process has kept processors busy.
func cpuTime() time.Duration {
	process, err := syscall.GetCurrentProcess()
	var created, exited, kernel, user syscall.Filetime
	if err == nil {
		err = syscall.GetProcessTimes(process, &created, &exited, &kernel, &user)
	}
	if err != nil {
		panic("times of the own process: " + err.Error())
	}
	return ticks(kernel) + ticks(user)
}

// ticks returns a length of time, which comes in units of 100 ns.
func ticks(t syscall.Filetime) time.Duration {
	return time.Duration(uint64(t.HighDateTime)<<32|uint64(t.LowDateTime)) * 100
}
