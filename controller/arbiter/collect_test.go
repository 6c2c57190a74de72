package arbiter

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
)

// TestAClockThatIsOffByMinutesDeletesNoSetTooSoon compares the clock of this process with that of the API server, which created a set,
// and that of an earlier leader, which noted since when it is unused.
func TestAClockThatIsOffByMinutesDeletesNoSetTooSoon(t *testing.T) {
	now := time.Now()
	a := &arbiter{opt: Options{Unused: defaultUnused, Junk: defaultJunk}}
	for _, skew := range []time.Duration{-5 * time.Minute, 0, 5 * time.Minute} {
		created := &assayv1alpha1.NodeFeatureSet{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-skew))}}
		unused := created.DeepCopy()
		unused.Status.Nodes = new(int32)
		unused.Annotations = map[string]string{assayv1alpha1.UnusedSinceAnnotation: now.Add(-skew).Format(time.RFC3339)}
		for name, test := range map[string]struct {
			set         *assayv1alpha1.NodeFeatureSet
			early, late time.Duration
		}{
			"a new set":     {created, 4 * time.Minute, defaultJunk + 5*time.Minute},
			"an unused set": {unused, defaultUnused - 6*time.Minute, defaultUnused + 5*time.Minute},
		} {
			if a.expired(test.set, now.Add(test.early)) || !a.expired(test.set, now.Add(test.late)) {
				t.Errorf("with a difference of %s, %s is deleted within %s, or is still kept after %s", skew, name, test.early, test.late)
			}
		}
	}
}
