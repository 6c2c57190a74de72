package schedulerconfig

import (
	"encoding/json"
	"strings"
	"testing"

	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"
)

func TestSchedulerConfigsAreWhatSchedulersRead(t *testing.T) {
	for _, name := range installations {
		t.Run(name, func(t *testing.T) {
			own := name != "second"
			f := &options{For: name, Weight: 3, CA: "/ca", Cert: "/cert", Key: "/key"}
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
			verbs := ""
			for _, e := range config.Extenders {
				verbs += strings.Join([]string{e.FilterVerb, e.PreemptVerb, e.PrioritizeVerb}, " ")
				if !e.NodeCacheCapable || (e.Weight > 0) != (e.PrioritizeVerb != "") {
					t.Errorf("got %+v", e)
				}
				if own != e.EnableHTTPS || own != (len(config.Profiles) == 0) {
					t.Errorf("TLS is %t with %d profiles", e.EnableHTTPS, len(config.Profiles))
				}
				if e.EnableHTTPS && (e.TLSConfig == nil || e.TLSConfig.CAFile == "") {
					t.Error("TLS without an authority would trust every server")
				}
			}
			if want := "filter preempt prioritize"; verbs != want {
				t.Errorf("it asks %q, want %q", verbs, want)
			}
		})
	}
}

func TestSchedulerConfigRefusesWhatCannotWork(t *testing.T) {
	for name, f := range map[string]*options{
		"no installation": {Weight: 3},
		"unknown":         {For: "minikube", Weight: 3},
		"plain HTTP":      {For: "kubeadm", URL: "http://10.0.0.1:80", Weight: 3},
		"no address":      {For: "kubeadm", URL: "extender", Weight: 3},
		"weight":          {For: "second", Weight: 0},
	} {
		if _, err := f.render(); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
