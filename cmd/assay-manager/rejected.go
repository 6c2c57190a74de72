package main

import (
	"context"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/rules/clip"
)

// configurationValid is 0 while the controller uses an older configuration because the current one has errors.
var configurationValid = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "assay_configuration_valid",
	Help: "1 if the configuration is valid; 0 if a change has errors and the previous configuration is used.",
})

func init() { ctrlmetrics.Registry.MustRegister(configurationValid) }

// maxMessageBytes is the maximum size of the message of an Event, as in Kubernetes' own recorders.
const maxMessageBytes = 1024

// reject logs an invalid configuration, counts it and creates an Event about the pod.
func (f *controllerFlags) reject(ctx context.Context, wrong error, log logr.Logger) {
	configurationValid.Set(0)
	log.Error(wrong, "Invalid configuration; keeping the previous one")
	rest, err := restConfig(f.kubeconfig)
	if err != nil {
		return // it is not in a cluster, so that it has no pod
	}
	own := publish.Identity{}
	if token, err := os.ReadFile(rest.BearerTokenFile); err == nil {
		own, _ = publish.FromToken(token)
	}
	own = own.Or(publish.Identity{Pod: os.Getenv("POD_NAME"), PodUID: os.Getenv("POD_UID")})
	if own.Pod == "" {
		return
	}
	c, err := client.New(rest, client.Options{})
	if err == nil {
		err = c.Create(ctx, rejection(own, f.namespace, "keeping the previous configuration: "+wrong.Error()))
	}
	if err != nil && ctx.Err() == nil {
		log.Error(err, "Cannot create an Event about the invalid configuration")
	}
}

// rejection returns an Event about a pod in a namespace whose configuration is invalid.
func rejection(own publish.Identity, namespace, message string) *corev1.Event {
	const component = "assay-controller"
	now := metav1.NewTime(time.Now())
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: own.Pod + ".", Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: own.Pod, UID: types.UID(own.PodUID),
		},
		Reason: "InvalidConfiguration", Message: clip.Text(message, maxMessageBytes-len("…")), Type: corev1.EventTypeWarning,
		Source: corev1.EventSource{Component: component, Host: own.Node}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
		ReportingController: component, ReportingInstance: own.Pod,
	}
}
