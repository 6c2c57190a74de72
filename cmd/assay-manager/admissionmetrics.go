package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/assay-project/assay/certs"
	"github.com/assay-project/assay/webhook"
)

// admissionMetrics are the metrics of admission requests and responses. Together the labels have a few dozen values.
type admissionMetrics struct {
	reviews *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

func newAdmissionMetrics(k keeper) *admissionMetrics {
	m := &admissionMetrics{
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "assay_webhook_reviews_total",
			Help: "Reviews by resource and verdict: allowed, warned, denied, or failed for a reason unrelated to the object.",
		}, []string{"resource", "verdict"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "assay_webhook_review_duration_seconds",
			Help:    "Time from the headers of a request to its response.",
			Buckets: prometheus.ExponentialBuckets(0.000_25, 2, 14), // a small rule takes 0.3 ms, and the API server times out after 2 s
		}, []string{"resource"}),
	}
	ctrlmetrics.Registry.MustRegister(append(certificateMetrics(k), m.reviews, m.seconds)...)
	return m
}

// certificateMetrics registers the metric for the expiry of a server certificate.
func certificateMetrics(certificate interface{ Status() (certs.Status, bool) }) []prometheus.Collector {
	status := func() (notAfter time.Time) {
		s, _ := certificate.Status()
		return s.NotAfter
	}
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "assay_certificate_expiration_timestamp_seconds",
			Help: "When the serving certificate in use expires, in seconds since 1970; 0 while there is none.",
		}, func() float64 {
			if t := status(); !t.IsZero() {
				return float64(t.Unix())
			}
			return 0
		}),
	}
}

// attach configures the webhook to count its reviews.
func (m *admissionMetrics) attach(o *webhook.Options) {
	o.Observe = func(resource, verdict string, took time.Duration) {
		m.reviews.WithLabelValues(resource, verdict).Inc()
		m.seconds.WithLabelValues(resource).Observe(took.Seconds())
	}
}
