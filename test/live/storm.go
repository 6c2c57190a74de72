//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

const (
	// calm is how long the worker rests before and after a storm.
	calm = 3 * time.Second
	// gust is how long other events occur between two changes of the configuration.
	gust = time.Second
	// breath is the time between two events: a node that starts pods one after another causes about ten events a second.
	breath = 20 * time.Millisecond
)

// printStorm changes the configuration repeatedly while interfaces come and go and feature files are written, and prints the
// worker's peak memory.
func (b *bench) printStorm(ctx context.Context, changes int) error {
	if err := wait(ctx, calm); err != nil {
		return err
	}
	// Writing 5 resets VmHWM, see proc_pid_clear_refs(5).
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", b.worker), []byte("5"), 0o200); err != nil {
		return err
	}
	used := b.cpuTime()
	events := 0
	for i := range changes {
		configured := fmt.Sprintf("core: {labelSources: [all, fake]}\nsources: {fake: {labels: {storm: \"%d\"}}}\n", i)
		if err := b.write("worker.conf", configured); err != nil {
			return err
		}
		for end := time.Now().Add(gust); time.Now().Before(end); events += 2 {
			if err := b.blow(ctx, events); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(b.write("worker.conf", plainConfig), wait(ctx, calm)); err != nil {
		return err
	}
	return b.printCost(fmt.Sprintf("in a storm of %d events and %d changes of its configuration (%s of CPU)", events, changes, b.cpuTime()-used))
}

// blow creates and removes a link and a file.
func (b *bench) blow(ctx context.Context, number int) error {
	name := fmt.Sprint("s", number%1000) // names of interfaces have at most 15 characters
	link, file := veth(vethName+name), b.file("features.d/"+name, name+"\n")
	if err := errors.Join(ignoreImpossible(link(true)), file(true), wait(ctx, breath)); err != nil {
		return err
	}
	return errors.Join(ignoreImpossible(link(false)), file(false), wait(ctx, breath))
}

func ignoreImpossible(err error) error {
	if errors.Is(err, errImpossible) {
		return nil
	}
	return err
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
