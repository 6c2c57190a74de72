//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/test/cluster"
)

const (
	// draDriver is the name of the test's DRA driver, draProgram that of its program, and draSlices the number of its slices.
	draDriver  = "gpu.example.com"
	draProgram = "dra"
	draSlices  = 2
	// draCount is the label with the number of its devices, draDevices that number, and draCondition the condition that all are published.
	draCount     = "example.com/gpu.count"
	draDevices   = "4"
	draCondition = "example.com/DevicesPublished"
)

// draRules label the Node by the devices of the driver.
const draRules = `
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: dra}
spec:
  priority: 10
  rules:
  - name: gpus
    labelsTemplate: "` + draCount + `={{ len .dra.device }}"
    matchFeatures:
    - feature: dra.device
      matchExpressions: {driver.name: {op: In, value: [` + draDriver + `]}}
  - name: complete
    matchFeatures:
    - feature: dra.driver
      matchExpressions: {name: {op: In, value: [` + draDriver + `]}, devices: {op: Ge, value: ["4"]}, complete: {op: IsTrue}}
    nodeConditions: [{type: ` + draCondition + `, status: "True", reason: Complete, message: All devices are published.}]
---
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: dra-default}
spec:
  rules:
  - name: default
    nodeConditions: [{type: ` + draCondition + `, status: "False", reason: Incomplete, message: Devices of the driver are missing.}]
`

// runDriver runs a DRA driver with four devices in two slices, and rules that read them.
func runDriver(ctx context.Context, s *story) error {
	if _, err := s.showInput(ctx, draRules, "kubectl", "apply", "-f", "-"); err != nil {
		return err
	}
	list := make([][]resourcev1.Device, draSlices)
	for i := range list {
		for j := range 2 {
			list[i] = append(list[i], resourcev1.Device{
				Name:       fmt.Sprintf("gpu-%d-%d", i, j),
				Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"productName": {StringValue: new("Example H100")}},
			})
		}
	}
	text, err := json.Marshal(map[string]any{nodeName: list})
	if err != nil {
		return err
	}
	file := s.path("dra-devices.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	began := time.Now()
	err = s.Run(ctx, cluster.Program{Name: draProgram, Path: s.path(binDir + "/" + draProgram), Args: []string{
		"-driver=" + draDriver, "-node=" + nodeName, "-kubeconfig=" + s.Kubeconfig, "-kubelet=" + s.path(diskDir+"/kubelet"), file,
	}})
	if err != nil {
		return err
	}
	if err := s.devices(ctx, corev1.ConditionTrue); err != nil {
		return err
	}
	s.figure("the label of a DRA driver's devices %.1f s after the driver was started", time.Since(began).Seconds())
	_, err = s.show(ctx, "kubectl", "get", "resourceslices")
	return err
}

// restartDriver stops the driver until the kubelet has deleted its slices, and then restarts the kubelet, which deletes them at once.
func restartDriver(ctx context.Context, s *story) error {
	err := s.watched(ctx, func() error {
		first, err := s.slices(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := s.Terminate(ctx, draProgram); err != nil {
			return err
		}
		if err := s.newSlices(ctx, first, 0); err != nil {
			return err
		}
		s.note("the kubelet has deleted the slices %.0f s after the driver has stopped", time.Since(began).Seconds())
		if err := s.devices(ctx, corev1.ConditionFalse); err != nil {
			return err
		}
		if _, err := s.show(ctx, "kubectl", "get", "node", nodeName, "-o",
			`custom-columns=GPUS:.metadata.labels.example\.com/gpu\.count,PUBLISHED:.status.conditions[?(@.type=="`+draCondition+`")].status`); err != nil {
			return err
		}
		if err := s.Restart(ctx, draProgram); err != nil {
			return err
		}
		if err := s.devices(ctx, corev1.ConditionTrue); err != nil {
			return err
		}
		if first, err = s.slices(ctx); err != nil {
			return err
		}
		if err := s.restartKubelet(ctx); err != nil {
			return err
		}
		if err := s.newSlices(ctx, first, draSlices); err != nil {
			return err
		}
		s.note("the kubelet has restarted and deleted the slices, and the driver has published them again")
		return s.devices(ctx, corev1.ConditionTrue)
	})
	if err != nil {
		return err
	}
	if _, err := s.show(ctx, "kubectl", "delete", "nodefeaturerules", "dra", "dra-default"); err != nil {
		return err
	}
	return s.Terminate(ctx, draProgram)
}

// devices waits until the Node has a label with the number of devices, and the condition with a status.
func (s *story) devices(ctx context.Context, published corev1.ConditionStatus) error {
	return cluster.WaitFor(ctx, "label and condition of the DRA driver", func(ctx context.Context) error {
		node, err := s.node(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == draCondition })
		if i < 0 {
			return errors.New("the Node does not have the condition")
		}
		if got, status := node.Labels[draCount], node.Status.Conditions[i].Status; got != draDevices || status != published {
			return fmt.Errorf("label %q, condition %s; want %q, %s", got, status, draDevices, published)
		}
		return nil
	})
}

// slices returns the UIDs of the ResourceSlices.
func (s *story) slices(ctx context.Context) (uids []string, err error) {
	list, err := s.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		uids = append(uids, string(list.Items[i].UID))
	}
	return uids, nil
}

// newSlices waits until there is a number of ResourceSlices, and none of the old ones.
func (s *story) newSlices(ctx context.Context, old []string, want int) error {
	return cluster.WaitFor(ctx, "ResourceSlices", func(ctx context.Context) error {
		now, err := s.slices(ctx)
		if err != nil {
			return err
		}
		if len(now) != want || slices.ContainsFunc(now, func(uid string) bool { return slices.Contains(old, uid) }) {
			return fmt.Errorf("there are %s; there were %s", strings.Join(now, " "), strings.Join(old, " "))
		}
		return nil
	})
}
