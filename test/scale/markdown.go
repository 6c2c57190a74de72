//go:build linux

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/assay-project/assay/test/cluster/kube"
	"github.com/assay-project/assay/test/stage"
)

// markdown prints the tables of docs/scale.md.
func (r results) markdown(w io.Writer) error {
	for _, one := range r {
		if err := one.markdown(w); err != nil {
			return err
		}
	}
	if len(r) < 2 {
		return nil
	}
	rows := [][]string{{"CPU of the API server", "whole objects", "shared sets", "ratio"}}
	for i, shared := range r[1].Phases {
		whole := r[0].Phases[i]
		a, b := whole.Processes[kube.APIServer].CPUSeconds, shared.Processes[kube.APIServer].CPUSeconds
		if b > 0 {
			rows = append(rows, []string{whole.Name, whole.cost(), shared.cost(), fmt.Sprintf("%.1f", a/b)})
		}
	}
	return rowsTo(w, rows)
}

func (r *result) markdown(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%d nodes, %s:\n\n", r.Nodes, r.mode()); err != nil {
		return err
	}
	figures := [][]string{{"figure", "measured"}}
	for _, f := range r.figures() {
		figures = append(figures, []string{f.name, f.value})
	}
	if err := rowsTo(w, figures); err != nil {
		return err
	}
	rows := [][]string{{
		"phase", "time", "API server CPU", "memory in MB: API server", "etcd", "controller", "webhook", "extender", "database in MB", "controller CPU", "429",
	}}
	for _, p := range r.Phases {
		row := []string{p.Name, fmt.Sprintf("%.1f s", p.Seconds), p.cost()}
		for _, name := range processes {
			row = append(row, megabytes(p.Processes[name].MemoryBytes))
		}
		row = append(row, megabytes(p.EtcdBytes), fmt.Sprintf("%.1f s", p.Processes[stage.Controller].CPUSeconds), fmt.Sprint(p.Rejected))
		rows = append(rows, row)
	}
	return rowsTo(w, rows)
}

// cost is the CPU time of the API server: for each node, if the phase has nodes.
func (r *phaseResult) cost() string {
	cpu := r.Processes[kube.APIServer].CPUSeconds
	if r.Per == 0 {
		return fmt.Sprintf("%.1f s", cpu)
	}
	return fmt.Sprintf("%.1f ms a node", 1000*cpu/float64(r.Per))
}

// figure is a result that the page describes.
type figure struct{ name, value string }

// figures returns the figures of the phases that were completed.
func (r *result) figures() []figure {
	var out []figure
	add := func(phase, name string, value func(p *phaseResult) string) {
		if i := slices.IndexFunc(r.Phases, func(p *phaseResult) bool { return p.Name == phase }); i >= 0 {
			out = append(out, figure{name, value(r.Phases[i])})
		}
	}
	milliseconds := func(key string) func(*phaseResult) string {
		return func(p *phaseResult) string { return fmt.Sprintf("%.0f ms", p.Values[key]) }
	}
	perSecond := func(p *phaseResult) string {
		return fmt.Sprintf("%.1f s, %.0f a second", p.Seconds, float64(p.Per)/p.Seconds)
	}
	memory := func(name string) func(*phaseResult) string {
		return func(p *phaseResult) string { return megabytes(p.Processes[name].MemoryBytes) + " MB" }
	}
	add(phasePublish, "CPU of the API server for the first publication", (*phaseResult).cost)
	add(phaseChange, "CPU of the API server for one changed attribute", (*phaseResult).cost)
	if r.Start != nil {
		perNode := func(bytes int64) string { return fmt.Sprintf("%.0f kB", float64(bytes)/1e3/float64(r.Nodes)) }
		add(phasePublish, "memory of the API server for each node", func(p *phaseResult) string {
			return perNode(p.Processes[kube.APIServer].MemoryBytes - r.Start.Processes[kube.APIServer].MemoryBytes)
		})
		if r.PublishedHeapBytes > 0 {
			add(phasePublish, "live heap of the API server for each node", func(*phaseResult) string {
				return perNode(r.PublishedHeapBytes - r.StartHeapBytes)
			})
		}
		add(phasePublish, "size of the database for each node", func(p *phaseResult) string { return perNode(p.EtcdBytes - r.Start.EtcdBytes) })
	}
	add(phaseLabel, "all nodes labeled after the start of the controller", perSecond)
	add(phaseIdle, "memory of the controller while idle", memory(stage.Controller))
	add(phaseIdle, "memory of the webhook", memory(stage.Webhook))
	add(phaseIdle, "memory of the extender", memory(stage.Extender))
	add(phaseIdle, "requests about nodes and features while idle", func(p *phaseResult) string { return p.requests() })
	add(phaseChange, "change to label, median", milliseconds("labeledP50ms"))
	add(phaseChange, "change to label, 99 %", milliseconds("labeledP99ms"))
	add(phaseDevices, "rule that reads devices, until all nodes have its label", perSecond)
	add(phaseDevicesIdle, "memory of the controller with devices", memory(stage.Controller))
	add(phaseDevicesIdle, "memory of the webhook with devices", memory(stage.Webhook))
	add(phaseDevicesIdle, "memory of the extender with devices", memory(stage.Extender))
	add(phaseDevicesIdle, "requests about nodes, features and devices while idle", func(p *phaseResult) string { return p.requests() })
	add(phaseSlice, "slice change to label, median", milliseconds("labeledP50ms"))
	add(phaseSlice, "slice change to label, 99 %", milliseconds("labeledP99ms"))
	add(phaseRuleNone, "rule that matches no node, until the controller is idle", func(p *phaseResult) string {
		return fmt.Sprintf("%.1f s, %d node writes", p.Values["controllerIdleSeconds"], p.Requests["PATCH nodes/status"])
	})
	add(phaseRuleAll, "rule that matches all nodes", perSecond)
	add(phaseController, "restart of the controller, until it is idle", func(p *phaseResult) string {
		return fmt.Sprintf("%.1f s, %d node writes", p.Values["controllerIdleSeconds"], p.Requests["PATCH nodes/status"])
	})
	add(phaseWorkers, "restart of all workers", func(p *phaseResult) string {
		return fmt.Sprintf("%.1f s, %d writes, %d rejected", p.Seconds, p.Requests["PATCH nodefeatures"]+p.Requests["POST nodefeatures"], p.Rejected)
	})
	return out
}

// requests lists the requests that are printed in tables.
func (r *phaseResult) requests() string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(r.Requests)) {
		if _, resource, _ := strings.Cut(key, " "); interesting(resource) {
			list = append(list, fmt.Sprintf("%s: %d", key, r.Requests[key]))
		}
	}
	if list == nil {
		return "none"
	}
	return strings.Join(list, ", ")
}

// rowsTo prints a table whose first row is the header.
func rowsTo(w io.Writer, rows [][]string) error {
	var text strings.Builder
	for i, row := range rows {
		text.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			text.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	_, err := fmt.Fprintln(w, text.String())
	return err
}
