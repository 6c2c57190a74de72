// Package helm3 tests that Helm 3 and Helm 4 render the chart identically. It is a separate module, so that their dependencies are
// independent.
package helm3
