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

// errImpossible means that this machine does not support an event.
var errImpossible = errors.New("not possible on this machine")

// event is a change on a host, which can be undone.
type event struct {
	name string
	// prepare creates the device or file, and clear removes it; both can be nil.
	prepare, clear func() error
	// happen makes the change, or undoes it.
	happen func(on bool) error
	// published reports whether the NodeFeature shows the change.
	published func(*nfdv1alpha1.NodeFeature) bool
	// label is the label of the Node while the change is in effect.
	label string
}

const (
	// blockNumbers is the prefix of the numbers of loop devices that are created; no machine has so many.
	blockNumbers = "471"
	// changedMTU is an unusual MTU.
	changedMTU = 1370
)

// events returns the events of a round: each round has its own devices and names.
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

// plainConfig is the default configuration of the worker.
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

// loopDevice returns a function that adds and removes a loop device without a file, see include/uapi/linux/loop.h.
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
			if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) { // udev can be using it
				return err
			}
		}
	}
}
