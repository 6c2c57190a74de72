// Package helm tests what Helm 3 and Helm 4 do with the chart, its definitions and rules on a real API server.
package helm
