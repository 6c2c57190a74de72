package main

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
)

// schedulerConfiguration has the fields of KubeSchedulerConfiguration (k8s.io/kube-scheduler/config/v1) that the test needs. The
// package itself would add a dependency on component-base.
type schedulerConfiguration struct {
	APIVersion       string            `json:"apiVersion"`
	Kind             string            `json:"kind"`
	ClientConnection map[string]string `json:"clientConnection"`
	LeaderElection   struct {
		LeaderElect       bool   `json:"leaderElect"`
		ResourceName      string `json:"resourceName"`
		ResourceNamespace string `json:"resourceNamespace"`
	} `json:"leaderElection"`
	Profiles []struct {
		SchedulerName            string `json:"schedulerName"`
		PercentageOfNodesToScore int32  `json:"percentageOfNodesToScore"`
	} `json:"profiles"`
	Extenders []struct {
		URLPrefix        string `json:"urlPrefix"`
		FilterVerb       string `json:"filterVerb"`
		PrioritizeVerb   string `json:"prioritizeVerb"`
		PreemptVerb      string `json:"preemptVerb"`
		Weight           int64  `json:"weight"`
		NodeCacheCapable bool   `json:"nodeCacheCapable"`
		HTTPTimeout      string `json:"httpTimeout"`
		Ignorable        bool   `json:"ignorable"`
		EnableHTTPS      bool   `json:"enableHTTPS"`
		TLSConfig        *struct {
			CAFile   string `json:"caFile"`
			CertFile string `json:"certFile"`
			KeyFile  string `json:"keyFile"`
		} `json:"tlsConfig"`
		ManagedResources []struct {
			Name               string `json:"name"`
			IgnoredByScheduler bool   `json:"ignoredByScheduler"`
		} `json:"managedResources"`
	} `json:"extenders"`
}

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
			var config schedulerConfiguration
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
