//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/test/cluster/kube"
	"github.com/assay-project/assay/test/stage"
)

// results are the results of one or more modes.
type results []*result

// result is the measurements in one mode.
type result struct {
	Nodes  int  `json:"nodes"`
	Shared bool `json:"shared"`
	// Slices is set if each node has a ResourceSlice.
	Slices bool `json:"slices,omitempty"`
	// Shapes is the number of NodeShapes at the end, and ShapeBytes the size of the largest as JSON.
	Shapes     int `json:"shapes,omitempty"`
	ShapeBytes int `json:"shapeBytes,omitempty"`
	// Start is the usage before the first phase: Nodes and rules exist.
	Start *phaseResult `json:"start,omitempty"`
	// StartHeapBytes and PublishedHeapBytes are the live heap of the API server before the first phase and after the publication.
	StartHeapBytes     int64 `json:"startHeapBytes,omitempty"`
	PublishedHeapBytes int64 `json:"publishedHeapBytes,omitempty"`

	Phases []*phaseResult `json:"phases"`
}

// phaseResult is the usage of one phase, until all processes were idle again.
type phaseResult struct {
	Name string `json:"name"`
	// Per is the number of nodes of the phase; 0: none.
	Per int `json:"per,omitempty"`
	// Seconds is the time until the phase was complete.
	Seconds   float64                  `json:"seconds"`
	Processes map[string]processResult `json:"processes"`
	// Requests are those of all clients that the API server answered, by verb and resource.
	Requests map[string]int `json:"requests"`
	// Rejected is the number of requests that the API server answered with 429.
	Rejected  int   `json:"rejected"`
	EtcdBytes int64 `json:"etcdBytes"`
	// Values are durations of single changes.
	Values map[string]float64 `json:"values,omitempty"`
}

// processResult is the usage of one process in a phase, and its memory at the end.
type processResult struct {
	CPUSeconds  float64 `json:"cpuSeconds"`
	MemoryBytes int64   `json:"memoryBytes"`
}

// line describes the phase in a line of progress.
func (r *phaseResult) line() string {
	api := r.Processes[kube.APIServer]
	return fmt.Sprintf("%s: %.1f s; API server %.1f s of CPU, %s MB; controller %.1f s of CPU, %s MB", r.Name, r.Seconds,
		api.CPUSeconds, megabytes(api.MemoryBytes), r.Processes[stage.Controller].CPUSeconds, megabytes(r.Processes[stage.Controller].MemoryBytes))
}

func (r *phaseResult) fill(used *snapshot) {
	r.Requests, r.Rejected, r.EtcdBytes, r.Processes = used.requests, used.rejected, used.etcd, map[string]processResult{}
	for name, p := range used.processes {
		r.Processes[name] = processResult{CPUSeconds: p.cpu.Seconds(), MemoryBytes: p.memory}
	}
}

func (r results) json(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func (r results) table(w io.Writer) error {
	for _, one := range r {
		if err := one.table(w); err != nil {
			return err
		}
	}
	if len(r) < 2 {
		return nil
	}
	_, err := fmt.Fprintln(w, "\nCPU of the API server, whole objects divided by shared sets")
	for i, shared := range r[1].Phases {
		whole := r[0].Phases[i]
		if cpu := shared.Processes[kube.APIServer].CPUSeconds; cpu > 0 {
			_, err = fmt.Fprintf(w, "  %s: %.1f\n", whole.Name, whole.Processes[kube.APIServer].CPUSeconds/cpu)
		}
	}
	return err
}

func (r *result) mode() string {
	mode := "whole objects"
	if r.Shared {
		mode = "shared sets"
	}
	if r.Slices {
		mode += fmt.Sprintf(", %d devices on each node", devices)
	}
	return mode
}

func (r *result) table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(cells ...string) { _, _ = fmt.Fprintln(t, strings.Join(cells, "\t")+"\t") }
	_, _ = fmt.Fprintf(w, "%d nodes, %s\n\n", r.Nodes, r.mode())
	row("phase", "seconds", "API server CPU s", "ms a node", "MB", "etcd MB", "database MB", "controller CPU s", "MB", "webhook MB", "extender MB", "429")
	for _, p := range r.Phases {
		api, controller := p.Processes[kube.APIServer], p.Processes[stage.Controller]
		each := ""
		if p.Per > 0 {
			each = fmt.Sprintf("%.1f", 1000*api.CPUSeconds/float64(p.Per))
		}
		row(p.Name, fmt.Sprintf("%.1f", p.Seconds), fmt.Sprintf("%.2f", api.CPUSeconds), each, megabytes(api.MemoryBytes),
			megabytes(p.Processes[kube.Etcd].MemoryBytes), megabytes(p.EtcdBytes),
			fmt.Sprintf("%.2f", controller.CPUSeconds), megabytes(controller.MemoryBytes),
			megabytes(p.Processes[stage.Webhook].MemoryBytes), megabytes(p.Processes[stage.Extender].MemoryBytes), fmt.Sprint(p.Rejected))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, p := range r.Phases {
		for _, name := range slices.Sorted(maps.Keys(p.Values)) {
			_, _ = fmt.Fprintf(w, "\n%s: %s %.1f", p.Name, name, p.Values[name])
		}
	}
	if r.Shapes > 0 {
		all, idle := r.shapeWrites()
		_, _ = fmt.Fprintf(w, "\n%d NodeShapes, the largest has %d bytes; %d writes in all phases, %d while idle", r.Shapes, r.ShapeBytes, all, idle)
	}
	_, err := fmt.Fprintln(w, "\n\nrequests by phase")
	for _, p := range r.Phases {
		_, err = fmt.Fprintf(w, "  %s: %s\n", p.Name, p.requests())
	}
	return err
}

// shapeWrites returns the number of writes of NodeShapes in all phases, and in the idle one.
func (r *result) shapeWrites() (all, idle int) {
	for _, p := range r.Phases {
		n := 0
		for key, count := range p.Requests {
			verb, resource, _ := strings.Cut(key, " ")
			if resource, _, _ = strings.Cut(resource, "/"); resource == assayv1alpha1.NodeShapeResource.Resource && (verb == "POST" || verb == "PATCH") {
				n += count
			}
		}
		all += n
		if p.Name == phaseIdle {
			idle += n
		}
	}
	return all, idle
}

// interesting reports whether requests to a resource are printed in the table; JSON has all.
func interesting(resource string) bool {
	resource, _, _ = strings.Cut(resource, "/")
	return resource == "nodes" || resource == "resourceslices" || resource == assayv1alpha1.NodeShapeResource.Resource || resource == assayv1alpha1.NodeBaselineResource.Resource || strings.HasPrefix(resource, "nodefeature")
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.0f", float64(bytes)/1e6) }
