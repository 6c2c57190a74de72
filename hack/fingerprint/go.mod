module github.com/assay-project/assay/hack/fingerprint

go 1.26.6

require github.com/k8stopologyawareschedwg/podfingerprint v0.3.0

require github.com/cespare/xxhash/v2 v2.3.0 // indirect
