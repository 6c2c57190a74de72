package main

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
)

func TestSchedulerConfigsAreWhatSchedulersRead(t *testing.T) {
	for _, name := range installations {
		t.Run(name, func(t *testing.T) {
			own := name != "second"
			f := &schedulerConfigFlags{For: name, Weight: 3, Marker: own, CA: "/ca", Cert: "/cert", Key: "/key"}
			text, err := f.render()
			if err != nil {
				t.Fatal(err)
			}
			_, body, ok := strings.Cut(text, "\n---\n")
			if !ok {
				body = text
			}
			if name == "talos" {
				var patch struct {
					Cluster struct {
						Scheduler struct{ Config json.RawMessage } `json:"scheduler"`
					} `json:"cluster"`
				}
				if err := yaml.Unmarshal([]byte(body), &patch); err != nil {
					t.Fatal(err)
				}
				body = string(patch.Cluster.Scheduler.Config)
			}
			var config schedulerv1.KubeSchedulerConfiguration
			if err := yaml.UnmarshalStrict([]byte(body), &config); err != nil {
				t.Fatalf("%v\n%s", err, body)
			}
			verbs := map[string]string{} // by marker resource
			for _, e := range config.Extenders {
				mark := ""
				for _, r := range e.ManagedResources {
					mark = r.Name
				}
				verbs[mark] += strings.Join([]string{e.FilterVerb, e.PreemptVerb, e.PrioritizeVerb}, " ")
				if !e.NodeCacheCapable || (e.Weight > 0) != (e.PrioritizeVerb != "") {
					t.Errorf("got %+v", e)
				}
				if own != e.EnableHTTPS || own != (len(config.Profiles) == 0) {
					t.Errorf("TLS is %t with %d profiles", e.EnableHTTPS, len(config.Profiles))
				}
				if e.EnableHTTPS && (e.TLSConfig == nil || e.TLSConfig.CAFile == "") {
					t.Error("TLS without an authority would trust anybody")
				}
			}
			want := map[string]string{"": "filter preempt prioritize"}
			if own {
				want = map[string]string{assayv1alpha1.MarkerResource: "filter preempt ", assayv1alpha1.PreferenceMarkerResource: "  prioritize"}
			}
			if !maps.Equal(verbs, want) {
				t.Errorf("it asks %v, want %v", verbs, want)
			}
		})
	}
}

func TestSchedulerConfigRefusesWhatCannotWork(t *testing.T) {
	for name, f := range map[string]*schedulerConfigFlags{
		"no installation": {Weight: 3},
		"unknown":         {For: "minikube", Weight: 3},
		"plain HTTP":      {For: "kubeadm", URL: "http://10.0.0.1:80", Weight: 3},
		"no address":      {For: "kubeadm", URL: "extender", Weight: 3},
		"weight":          {For: "second", Weight: 0},
		"marker":          {For: "second", Weight: 3, Marker: true},
	} {
		if _, err := f.render(); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
