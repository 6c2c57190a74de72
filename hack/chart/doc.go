// Package chart tests the chart with Helm's engine. It is a separate module, so that Assay does not depend on Helm.
package chart
