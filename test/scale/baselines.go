//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/scale/fleet"
	"github.com/assay-project/assay/test/stage"
)

// Names of the phases with -baselines.
const (
	phaseConforming = "all nodes conform"
	phaseDeviants   = "seven deviants each"
	phaseRestarted  = "restart controller with deviants"
	phaseRepaired   = "repair the deviants"
	phaseHalf       = "upgrade half of the nodes"
	phaseRest       = "upgrade the rest"
	phaseHeld       = "hold the removals of all nodes"
)

const (
	// baselineTypes is the number of instance types. Nodes of one type are compared with each other.
	baselineTypes = 2
	// baselineUnit divides the number of nodes: half of the nodes of each type are upgraded.
	baselineUnit = 2 * baselineTypes
	// minBaselineNodes leaves a majority of each type without deviants.
	minBaselineNodes = 40
	// upgraded is the value of nodes with a newer kernel.
	upgraded = "upgraded"
)

// deviant is a way in which a node differs from the others, the check that must find it, and what the status must say.
type deviant struct {
	value, check, message string
	change                func(*nfdv1alpha1.Features)
}

// deviants are of seven kinds: an old driver, a missing device kind and one wrong version among several, which the baseline requires, and a
// BIOS, a number of GPUs, a missing value and a kernel, which differ from those of other nodes.
var deviants = []deviant{
	{
		"old-driver", "driver", `update the driver: none of the 2 instances of kernel.module has version Ge "580"; found "24.10", "570.1"`,
		func(f *nfdv1alpha1.Features) { f.Instances["kernel.module"] = modules("570.1") },
	},
	{
		"no-cdi", "cdi", `the node has no feature cdi.kind`,
		func(f *nfdv1alpha1.Features) { delete(f.Instances, "cdi.kind") },
	},
	{
		"nvme", "nvme", `conditions[0]: one-of does not hold: value "B 1.9", values ["A 1.0","B 2.0"]`,
		func(f *nfdv1alpha1.Features) { f.Instances["storage.nvme"] = disks("1.9") },
	},
	{
		"bios", "bios", `1.9.3; NODES nodes with WITHIN have 2.1.0`,
		func(f *nfdv1alpha1.Features) { f.Attributes["scale.baseline"] = versions("1.9.3", "6.8", "28.39") },
	},
	{
		"gpus", "gpus", `7; NODES nodes with WITHIN have 8`,
		func(f *nfdv1alpha1.Features) { f.Instances["gpu.nvidia"] = nvidiaGPUs(7) },
	},
	{
		"no-nic", "nic-firmware", `absent; NODES nodes with WITHIN have 28.39`,
		func(f *nfdv1alpha1.Features) { f.Attributes["scale.baseline"] = versions("2.1.0", "6.8", "") },
	},
	{
		"kernel", "kernel", `5.4; NODES nodes with WITHIN have 6.8`,
		func(f *nfdv1alpha1.Features) { f.Attributes["scale.baseline"] = versions("2.1.0", "5.4", "28.39") },
	},
}

// scaleBaseline is the baseline of all nodes.
const scaleBaseline = `
metadata: {name: scale}
spec:
  require:
  - name: driver
    message: update the driver
    matchFeatures: [{feature: kernel.module, matchExpressions: {name: {op: In, value: [nvidia]}, version: {op: Ge, value: ["580"], type: version}}}]
  - {name: cdi, matchFeatures: [{feature: cdi.kind, matchExpressions: {kind: {op: In, value: [nvidia.com/gpu]}}}]}
  - {name: nvme, conditions: [{op: one-of, loop: "{@storage.nvme}", multiple: all, args: {value: "{item.model} {item.firmware_rev}", values: [A 1.0, B 2.0]}}]}
  uniform:
  - {name: bios, value: "{@scale.baseline.bios}"}
  - {name: gpus, value: "{@gpu.nvidia.len()}"}
  - {name: nic-firmware, value: "{@scale.baseline.nic}"}
  - {name: kernel, value: "{@scale.baseline.kernel}"}
  within: [node.kubernetes.io/instance-type]
`

func modules(driver string) nfdv1alpha1.InstanceFeatureSet {
	return instances(map[string]string{"name": "mlx5_core", "version": "24.10"}, map[string]string{"name": "nvidia", "version": driver})
}

func disks(firmware string) nfdv1alpha1.InstanceFeatureSet {
	return instances(map[string]string{"model": "A", "firmware_rev": "1.0"}, map[string]string{"model": "B", "firmware_rev": firmware})
}

func nvidiaGPUs(count int) nfdv1alpha1.InstanceFeatureSet {
	list := make([]map[string]string, count)
	for i := range list {
		list[i] = map[string]string{"model": "H100", "location": fmt.Sprintf("0000:%02x:00.0", i)}
	}
	return instances(list...)
}

func instances(list ...map[string]string) (out nfdv1alpha1.InstanceFeatureSet) {
	for _, attributes := range list {
		out.Elements = append(out.Elements, nfdv1alpha1.InstanceFeature{Attributes: attributes})
	}
	return out
}

func versions(bios, kernel, nic string) nfdv1alpha1.AttributeFeatureSet {
	out := map[string]string{"bios": bios, "kernel": kernel}
	if nic != "" {
		out["nic"] = nic
	}
	return nfdv1alpha1.AttributeFeatureSet{Elements: out}
}

// equal returns a function that gives each host what the baseline checks, as its value says, in addition to what it has.
func equal(content func(fleet.Node, string) publish.Content) func(fleet.Node, string) publish.Content {
	return func(n fleet.Node, value string) publish.Content {
		c := content(n, value)
		c.Features.Attributes, c.Features.Instances = maps.Clone(c.Features.Attributes), maps.Clone(c.Features.Instances)
		kernel := "6.8"
		if value == upgraded {
			kernel = "6.12"
		}
		c.Features.Attributes["scale.baseline"] = versions("2.1.0", kernel, "28.39")
		c.Features.Instances["kernel.module"], c.Features.Instances["storage.nvme"] = modules("580.95.05"), disks("2.0")
		c.Features.Instances["gpu.nvidia"], c.Features.Instances["cdi.kind"] = nvidiaGPUs(8), instances(map[string]string{"kind": "nvidia.com/gpu"})
		if i := slices.IndexFunc(deviants, func(d deviant) bool { return d.value == value }); i >= 0 {
			deviants[i].change(&c.Features)
		}
		return c
	}
}

// baselinePhases returns the phases with -baselines. Each fails if the status of the baseline does not become exactly what it must be.
func (s *scale) baselinePhases() []phase {
	all := len(s.nodes)
	object, levels := &assayv1alpha1.NodeBaseline{}, &assayv1alpha1.NodeBaseline{}
	planted := map[string]fleet.Node{} // by the value of the deviant
	for i, d := range deviants {
		planted[d.value] = s.nodes[i*all/len(deviants)]
	}
	half, rest := []fleet.Node{}, []fleet.Node{}
	for _, n := range s.nodes {
		if n.Number/baselineTypes%2 == 0 {
			half = append(half, n)
		} else {
			rest = append(rest, n)
		}
	}
	conform := func(ctx context.Context) error {
		if err := s.says(ctx, levels, assayv1alpha1.ReasonAllConform, nil); err != nil {
			return err
		}
		return s.says(ctx, object, assayv1alpha1.ReasonAllConform, nil)
	}
	return []phase{
		{name: phasePublish, per: all, do: func(ctx context.Context, _ *phaseResult) error {
			return s.fleet.Start(ctx, s.nodes, 0, s.counter(phasePublish, all))
		}},
		{name: phaseLabel, per: all, do: func(ctx context.Context, _ *phaseResult) error {
			if err := s.startController(ctx); err != nil {
				return err
			}
			return s.labeled(ctx, phaseLabel, s.nodes, valueLabel, firstValue)
		}},
		{name: phaseConforming, per: all, do: func(ctx context.Context, _ *phaseResult) error {
			for text, into := range map[string]*assayv1alpha1.NodeBaseline{scaleBaseline: object, scaleLevels: levels} {
				if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
					return err
				}
				if err := s.client.Create(ctx, into); err != nil {
					return err
				}
			}
			return conform(ctx)
		}},
		{name: phaseDeviants, per: len(deviants) + len(misplacedNodes), do: func(ctx context.Context, _ *phaseResult) error {
			want := map[string]string{}
			for _, d := range deviants {
				n := planted[d.value]
				if _, err := s.fleet.Publish(ctx, n, d.value); err != nil {
					return err
				}
				peers := all / baselineTypes
				message := strings.NewReplacer("NODES", fmt.Sprintf("%d of %d", peers-1, peers), "WITHIN",
					"node.kubernetes.io/instance-type="+instanceType(n.Number, baselineTypes)).Replace(d.message)
				want[n.Name+" "+d.check] = message
			}
			outside, err := s.misplace(ctx, false)
			if err != nil {
				return err
			}
			if err := s.says(ctx, levels, assayv1alpha1.ReasonNodesDeviate, outside); err != nil {
				return err
			}
			return s.says(ctx, object, assayv1alpha1.ReasonNodesDeviate, want)
		}, check: func(r *phaseResult) error {
			if r.Requests[statusWrites] == 0 { // the next phase would find none either
				return fmt.Errorf("no writes of the status are counted: %v", r.Requests)
			}
			return nil
		}},
		{name: phaseRestarted, per: all, do: func(ctx context.Context, r *phaseResult) error {
			start := time.Now()
			if err := s.Restart(ctx, stage.Controller); err != nil {
				return err
			}
			if err := s.idleController(ctx, start, r); err != nil {
				return err
			}
			return stage.Sleep(ctx, baselinesDelay(all)) // it evaluates once more, when all nodes have been read
		}, check: func(r *phaseResult) error {
			if n := r.Requests[statusWrites]; n > 0 {
				return fmt.Errorf("%d writes of the status although nothing has changed", n)
			}
			return nil
		}},
		{name: phaseRepaired, per: len(deviants) + len(misplacedNodes), do: func(ctx context.Context, _ *phaseResult) error {
			for _, d := range deviants {
				if _, err := s.fleet.Publish(ctx, planted[d.value], firstValue); err != nil {
					return err
				}
			}
			if _, err := s.misplace(ctx, true); err != nil {
				return err
			}
			return conform(ctx)
		}},
		{name: phaseHalf, per: len(half), do: func(ctx context.Context, _ *phaseResult) error {
			if err := s.publishAll(ctx, half, upgraded); err != nil {
				return err
			}
			return s.says(ctx, object, assayv1alpha1.ReasonNoMajority, nil)
		}},
		{name: phaseRest, per: len(rest), do: func(ctx context.Context, _ *phaseResult) error {
			if err := s.publishAll(ctx, rest, upgraded); err != nil {
				return err
			}
			return conform(ctx)
		}},
		{name: phaseHeld, per: all, do: func(ctx context.Context, _ *phaseResult) error {
			if err := s.publishAll(ctx, s.nodes, lostValue); err != nil {
				return err
			}
			return s.heldNodes(ctx)
		}},
	}
}

// baselinesDelay is longer than the controller batches changes of so many nodes.
func baselinesDelay(nodes int) time.Duration {
	return min(time.Minute, 5*time.Second*time.Duration(1+nodes/1000)) + 5*time.Second
}

// publishAll has the workers of nodes publish for a value.
func (s *scale) publishAll(ctx context.Context, nodes []fleet.Node, value string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(s.parallel)
	for _, n := range nodes {
		group.Go(func() error {
			_, err := s.fleet.Publish(ctx, n, value)
			return err
		})
	}
	return group.Wait()
}

// maxHeld is the maximum number of nodes whose holds the controller publishes.
const maxHeld = 500

// heldNodes waits until the controller says of each node that still has keptLabel why it does, up to maxHeld nodes.
func (s *scale) heldNodes(ctx context.Context) error {
	return cluster.WaitFor(ctx, "Events with holds", func(ctx context.Context) error {
		list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"}}
		if err := s.client.List(ctx, list, client.HasLabels{hold.Label}); err != nil {
			return err
		}
		held := 0
		for _, n := range s.nodes {
			if s.observer.has(n, keptLabel) {
				held++
			}
		}
		if held == 0 || len(list.Items) < min(held, maxHeld) {
			return fmt.Errorf("%d Events, and %d nodes have %s", len(list.Items), held, keptLabel)
		}
		return nil
	})
}

// says waits until the status of the baseline has this reason, is about all nodes, and has exactly these deviations: messages by node and check.
func (s *scale) says(ctx context.Context, b *assayv1alpha1.NodeBaseline, reason string, want map[string]string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, baselineBound, fmt.Errorf("waited %s", baselineBound))
	defer cancel()
	for {
		if err := s.client.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
			return err
		}
		got, conforming := map[string]string{}, ""
		for _, d := range b.Status.Deviations {
			got[d.Node+" "+d.Check] = d.Message
		}
		if c := meta.FindStatusCondition(b.Status.Conditions, assayv1alpha1.ConditionConforming); c != nil {
			conforming = c.Reason
		}
		whole := b.Status.Nodes != nil && int(*b.Status.Nodes) == len(s.nodes) && *b.Status.Unknown == 0
		if whole && conforming == reason && maps.Equal(got, want) {
			return nil
		}
		if err := stage.Sleep(ctx, baselineSample); err != nil {
			return fmt.Errorf("the status has the reason %q and the deviations %v, want %q and %v: %w", conforming, got, reason, want, err)
		}
	}
}

// statusWrites are the writes of the status of baselines, as the API server counts them.
const statusWrites = "PATCH nodebaselines/status"

const (
	// baselineBound is many times what any of these takes.
	baselineBound = 30 * time.Minute
	// baselineSample is the time between two reads of the status.
	baselineSample = 100 * time.Millisecond
)
