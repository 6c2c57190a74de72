package main

import (
	"context"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/assay-project/assay/discovery/publish"
)

// configurationValid is 0 while the controller uses an older configuration because the current one has errors.
var configurationValid = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "assay_configuration_valid",
	Help: "1 if the configuration is valid; 0 if a change has errors and the previous configuration is used.",
})

func init() { ctrlmetrics.Registry.MustRegister(configurationValid) }

// reject logs an invalid configuration, counts it and creates an Event about the pod.
func (f *controllerFlags) reject(ctx context.Context, wrong error, log logr.Logger) {
	configurationValid.Set(0)
	log.Error(wrong, "Invalid configuration; keeping the previous one")
	config, err := publish.InCluster()
	if f.kubeconfig != "" {
		config, err = publish.FromKubeconfig(f.kubeconfig)
	}
	if err != nil {
		return // it is not in a cluster, so that it has no pod
	}
	client, err := publish.NewClient(config)
	if err == nil {
		message := "keeping the previous configuration: " + wrong.Error()
		err = client.Warn(ctx, f.namespace, publish.Own(config.TokenFile), "assay-controller", publish.ReasonInvalidConfiguration, message)
	}
	if err != nil && ctx.Err() == nil {
		log.Error(err, "Cannot create an Event about the invalid configuration")
	}
}
