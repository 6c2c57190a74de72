// Package chart tests the chart with Helm's own engine. It is a module of its own, so that what Helm needs stays out of Assay.
package chart
