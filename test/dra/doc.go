// Package dra tests the features of DRA drivers with the libraries that drivers publish their devices with.
package dra
