package node

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/controller/budget"
)

// deployment is a fake API server with one Deployment that has this confirmation.
type deployment struct {
	client.Reader
	value string
}

func (d *deployment) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	m := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "manager", Annotations: map[string]string{ConfirmAnnotation: d.value}}}
	into.(*metav1.PartialObjectMetadataList).Items = []metav1.PartialObjectMetadata{m}
	return nil
}

// TestAConfirmationIsGoodForWhatIsHeldNow confirms from clients whose clocks are exact, five minutes slow, and five minutes fast.
func TestAConfirmationIsGoodForWhatIsHeldNow(t *testing.T) {
	for name, skew := range map[string]time.Duration{"Right": 0, "Slow": -5 * time.Minute, "Fast": 5 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(time.Now())
			breaker := budget.NewBreaker(budget.Budget{Window: time.Hour, Hold: 10 * time.Minute}, clock)
			manager, confirmed := &deployment{}, 0
			c := &confirmations{live: manager, annotation: ConfirmAnnotation, breaker: breaker, waiting: sharedMetrics().waiting, confirmed: func() { confirmed++ }}
			pass := func(d time.Duration) {
				clock.SetTime(clock.Now().Add(d))
				c.look(t.Context())
			}
			confirm := func() { manager.value = clock.Now().Add(skew).UTC().Format(time.RFC3339) }
			for round := 1; round <= 3; round++ {
				breaker.Allow("n", 1)
				for range 5 {
					pass(2 * time.Second)
				}
				if confirmed != round-1 {
					t.Fatalf("round %d: an old confirmation counts", round)
				}
				confirm()
				pass(2 * time.Second)
				if confirmed != round {
					t.Fatalf("round %d: the confirmation does not count", round)
				}
				breaker.Withdraw("n")
				pass(time.Minute)
			}
		})
	}
}

func TestWhatIsNoTimeConfirmsNothing(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	breaker := budget.NewBreaker(budget.Budget{Window: time.Hour, Hold: 10 * time.Minute}, clock)
	manager := &deployment{value: clock.Now().Add(-time.Hour).UTC().Format(time.RFC3339)}
	c := &confirmations{live: manager, annotation: ConfirmAnnotation, breaker: breaker, waiting: sharedMetrics().waiting, confirmed: func() { t.Errorf("%q confirms", manager.value) }}
	breaker.Allow("n", 1)
	for _, value := range []string{manager.value, "", "yes", "true", clock.Now().Add(-2 * time.Hour).UTC().Format(time.RFC3339)} {
		manager.value = value
		c.look(t.Context())
	}
}
