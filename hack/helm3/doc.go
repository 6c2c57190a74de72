// Package helm3 tests that the chart is the same to Helm 3 and Helm 4. It is a module of its own, so that the two do not raise
// each other's dependencies.
package helm3
