//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// errImpossible says that this machine cannot have an event.
var errImpossible = errors.New("not possible on this machine")

// event is something that happens on a host, and is undone.
type event struct {
	name string
	// prepare makes what it happens to, and clear removes that; both may be nil.
	prepare, clear func() error
	// happen makes it so, or undoes it.
	happen func(on bool) error
	// published reports whether the NodeFeature says that it is so.
	published func(*nfdv1alpha1.NodeFeature) bool
	// label is that of the Node while it is so.
	label string
}

const (
	// blockNumbers begin those of the loop devices that come and go; nobody has so many.
	blockNumbers = "471"
	// changedMTU is one that nobody else gives an interface.
	changedMTU = 1370
)

// events are what happens, by round: each has devices and names of its own.
func (b *bench) events() []func(round int) event {
	return []func(int) event{
		func(i int) event {
			label := fmt.Sprintf("live-file-%d", i)
			return event{
				name: "file of features.d written, removed", label: label,
				happen: b.file("features.d/"+label, label+"\n"), published: hasLabel(label),
			}
		},
		func(i int) event {
			name := fmt.Sprint(vethName, i)
			return event{
				name: "network interface created, removed", label: name,
				happen: veth(name), published: hasInstance("network.virtual", "name", name),
			}
		},
		func(i int) event {
			name := fmt.Sprint(vethName, "m", i)
			return event{
				name: "mtu of a link changed, changed back", label: name + "-mtu",
				prepare: func() error { return veth(name)(true) }, clear: func() error { return veth(name)(false) },
				happen: mtu(name, changedMTU+i), published: hasInstance("network.virtual", "mtu", fmt.Sprint(changedMTU+i)),
			}
		},
		func(i int) event {
			name := fmt.Sprint("loop", blockNumbers, i)
			return event{
				name: "block device created, removed", label: name,
				happen: loopDevice(name), published: hasInstance("storage.block", "name", name),
			}
		},
		func(i int) event {
			label := fmt.Sprintf("live-custom-%d", i)
			return event{
				name: "rule of custom.d written, removed", label: label,
				happen: b.file(fmt.Sprintf("custom.d/%d.yaml", i), "- name: live\n  labels: {"+label+": \"true\"}\n"+
					"  matchFeatures:\n  - feature: system.name\n    matchExpressions: {nodename: {op: Exists}}\n"),
				published: hasLabel(label),
			}
		},
		func(i int) event {
			label := fmt.Sprintf("fake-live-%d", i)
			return event{
				name: "configuration of the worker changed and back", label: label,
				happen: func(on bool) error {
					if !on {
						return b.write("worker.conf", plainConfig)
					}
					return b.write("worker.conf", "core: {labelSources: [all, fake]}\nsources: {fake: {labels: {"+strings.TrimPrefix(label, "fake-")+": \"true\"}}}\n")
				},
				published: hasLabel(label),
			}
		},
	}
}

// plainConfig is the worker's configuration most of the time.
const plainConfig = "core: {sleepInterval: 60s}\n"

// sleepInterval is that of plainConfig.
const sleepInterval = time.Minute

func (b *bench) file(name, text string) func(bool) error {
	return func(on bool) error {
		if on {
			return b.write(name, text)
		}
		return os.Remove(filepath.Join(b.dir, name))
	}
}

func hasLabel(name string) func(*nfdv1alpha1.NodeFeature) bool {
	return func(nf *nfdv1alpha1.NodeFeature) bool {
		_, ok := nf.Spec.Labels[name]
		return ok
	}
}

func hasInstance(feature, attribute, value string) func(*nfdv1alpha1.NodeFeature) bool {
	return func(nf *nfdv1alpha1.NodeFeature) bool {
		for _, e := range nf.Spec.Features.Instances[feature].Elements {
			if e.Attributes[attribute] == value {
				return true
			}
		}
		return false
	}
}

// loopDevice returns what adds and removes a loop device without a file behind it, see include/uapi/linux/loop.h.
func loopDevice(name string) func(bool) error {
	return func(on bool) error {
		const loopAdd, loopRemove = 0x4C80, 0x4C81
		number, err := strconv.Atoi(strings.TrimPrefix(name, "loop"))
		if err != nil {
			return err
		}
		control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
		if err != nil {
			return fmt.Errorf("%w: %w", errImpossible, err)
		}
		defer func() { _ = control.Close() }()
		request := uint(loopAdd)
		if !on {
			request = loopRemove
		}
		for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			err := unix.IoctlSetInt(int(control.Fd()), request, number)
			if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) { // udev may be looking at it
				return err
			}
		}
	}
}
