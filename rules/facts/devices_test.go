package facts_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
)

func slice(driver, pool string, generation, total int64, devices ...string) facts.Slice {
	list := []map[string]string{}
	for _, d := range devices {
		list = append(list, map[string]string{"device.name": d})
	}
	return facts.Slice{Driver: driver, Pool: pool, Generation: generation, Total: total, Devices: facts.NewInstances(list)}
}

// described returns the devices and the drivers of facts.
func described(f *facts.Facts) (out []string) {
	for _, d := range f.Feature(facts.DeviceFeature).Instances.Select(nil) {
		out = append(out, d["driver.name"]+"/"+d["pool.name"]+"/"+d["device.name"])
	}
	for _, d := range f.Feature(facts.DriverFeature).Instances.Select(nil) {
		out = append(out, fmt.Sprintf("%s: %s devices, %s pools, complete %s", d["name"], d["devices"], d["pools"], d["complete"]))
		if d["over_limit"] != "" {
			out = append(out, "over the limit: "+d["over_limit"])
		}
	}
	return out
}

func TestFactsOfPools(t *testing.T) {
	var many []string
	for i := range facts.MaxDevices {
		many = append(many, fmt.Sprint("d", i))
	}
	for name, tt := range map[string]struct {
		slices []facts.Slice
		want   []string
	}{
		"no slices": {nil, nil},
		"two drivers, two pools": {
			[]facts.Slice{slice("b", "n", 1, 1, "x"), slice("a", "q", 1, 1, "y"), slice("a", "p", 1, 2, "0", "1"), slice("a", "p", 1, 2, "2")},
			[]string{"a/p/0", "a/p/1", "a/p/2", "a/q/y", "b/n/x", "a: 4 devices, 2 pools, complete true", "b: 1 devices, 1 pools, complete true"},
		},
		"an older generation is still there": {
			[]facts.Slice{slice("a", "p", 1, 1, "old"), slice("a", "p", 2, 1, "new")},
			[]string{"a/p/new", "a: 1 devices, 1 pools, complete true"},
		},
		"the new generation is incomplete": {
			[]facts.Slice{slice("a", "p", 1, 1, "old"), slice("a", "p", 2, 2, "new"), slice("a", "q", 1, 1, "z")},
			[]string{"a/q/z", "a: 1 devices, 2 pools, complete false"},
		},
		"a driver without devices": {[]facts.Slice{slice("a", "p", 1, 1)}, []string{"a: 0 devices, 1 pools, complete true"}},
		"too many devices": {
			[]facts.Slice{slice("a", "p", 1, 1, "0"), slice("a", "q", 1, 1, many...)},
			[]string{"a/p/0", "a: 1 devices, 2 pools, complete false", "over the limit: q"},
		},
		"a large pool does not displace small ones of drivers with later names": {
			[]facts.Slice{slice("a", "p", 1, 1, many...), slice("b", "q", 1, 1, "1"), slice("b", "r", 1, 1, many...)},
			[]string{"b/q/1", "a: 0 devices, 1 pools, complete false", "over the limit: p", "b: 1 devices, 2 pools, complete false", "over the limit: r"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, described(facts.FromPools(facts.Pools(tt.slices), nil, facts.NewInterner()))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWithoutSomeFeatures(t *testing.T) {
	set := map[string]nfdv1alpha1.AttributeFeatureSet{"cpu.model": {}, "DRA.device": {}, "dra.else": {}, "drab.x": {}}
	f := facts.New(&nfdv1alpha1.Features{Attributes: set}, nil)
	if diff := cmp.Diff([]string{"cpu.model", "drab.x"}, f.Without(nil, facts.IsDevices).Names()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if same := f.Without(nil, facts.IsDevices); same.Without(nil, facts.IsDevices) != same {
		t.Error("facts without these features are copied")
	}
}
