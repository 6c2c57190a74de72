package devices_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/assay-project/assay/internal/fleet/devices"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/rules/facts"
)

var taintRules = schema.GroupResource{Group: resourcev1.GroupName, Resource: "devicetaintrules"}

// tainting starts Devices on a fake API server, which answers lists of DeviceTaintRules with an error while there is one.
func tainting(t *testing.T, answer *atomic.Pointer[error], stored ...client.Object) (*world, client.WithWatch) {
	scheme := runtime.NewScheme()
	if err := resourcev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored...).
		WithIndex(&resourcev1.ResourceSlice{}, resourcev1.ResourceSliceSelectorNodeName, func(o client.Object) []string {
			return []string{*o.(*resourcev1.ResourceSlice).Spec.NodeName}
		}).
		WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*resourcev1.DeviceTaintRuleList); ok && *answer.Load() != nil {
				return *answer.Load()
			}
			return c.List(ctx, list, opts...)
		}, Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			o := (&client.ListOptions{}).ApplyOptions(opts)
			if o.Raw != nil && o.Raw.SendInitialEvents != nil {
				return nil, errors.New("the fake API server does not stream lists")
			}
			return c.Watch(ctx, list, opts...)
		}}).Build()
	w := &world{t: t, clock: clocktesting.NewFakeClock(metav1.Now().Time)}
	w.Devices = devices.New(devices.Options{Client: api, Grace: grace, Clock: w.clock})
	w.Need([]string{facts.DeviceFeature})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Start(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return w, api
}

// taintsOf waits until the devices of node n have these taints; "unknown": nothing is known of them.
func (w *world) taintsOf(when, want string) devices.State {
	w.t.Helper()
	var s devices.State
	testkit.Eventually(w.t, when, func(context.Context) error {
		got := "unknown"
		if s = w.Of("n", "uid"); s.Facts != nil {
			var list []string
			for _, d := range s.Facts.Feature(facts.DeviceFeature).Instances.Select(nil) {
				list = append(list, d["device.name"]+" "+d["taints"])
			}
			got = strings.Join(list, "; ")
		}
		if got != want {
			return errors.New("devices are " + got + ", want " + want)
		}
		return nil
	})
	return s
}

func taintRule(name string, selector *resourcev1.DeviceTaintSelector, effect resourcev1.DeviceTaintEffect) *resourcev1.DeviceTaintRule {
	return &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.DeviceTaintRuleSpec{
		DeviceSelector: selector, Taint: resourcev1.DeviceTaint{Key: "example.com/" + name, Effect: effect},
	}}
}

func TestDeviceTaintRulesAreFollowed(t *testing.T) {
	var none error
	var answer atomic.Pointer[error]
	answer.Store(&none)
	one := taintRule("one", &resourcev1.DeviceTaintSelector{Driver: new("gpu"), Device: new("a-1")}, resourcev1.DeviceTaintEffectNoExecute)
	w, api := tainting(t, &answer, slice("a", "gpu", 1, 1, 2), one, taintRule("nothing", nil, resourcev1.DeviceTaintEffectNoExecute))
	s := w.taintsOf("at first", "a-0 ; a-1 example.com/one=:NoExecute")
	proven, err := w.Prove(t.Context(), "n", s)
	w.do(err)
	if got := proven.Feature(facts.DeviceFeature).Instances.Select(nil)[1]["taints"]; got != "example.com/one=:NoExecute" {
		t.Errorf("proven taints %q", got)
	}

	all := taintRule("all", &resourcev1.DeviceTaintSelector{}, resourcev1.DeviceTaintEffectNone)
	w.do(api.Create(t.Context(), all))
	s = w.taintsOf("an empty selector", "a-0 example.com/all=:None; a-1 example.com/all=:None,example.com/one=:NoExecute")
	w.do(api.Delete(t.Context(), one))
	w.taintsOf("without the first one", "a-0 example.com/all=:None; a-1 example.com/all=:None")
	if _, err := w.Prove(t.Context(), "n", s); !errors.Is(err, devices.ErrStale) {
		t.Errorf("error %v of a State from before, want ErrStale", err)
	}
}

// TestAClusterWithoutDeviceTaintRulesHasDevices: Kubernetes has served them since 1.37.
func TestAClusterWithoutDeviceTaintRulesHasDevices(t *testing.T) {
	absent := error(apierrors.NewNotFound(taintRules, ""))
	var answer atomic.Pointer[error]
	answer.Store(&absent)
	w, _ := tainting(t, &answer, slice("a", "gpu", 1, 1, 1), taintRule("all", &resourcev1.DeviceTaintSelector{}, resourcev1.DeviceTaintEffectNone))
	w.taintsOf("without the API", "a-0 ")
	if why := w.Problem([]string{facts.DeviceFeature}); why != "" {
		t.Errorf("problem %q", why)
	}
	// The API server is upgraded.
	var none error
	answer.Store(&none)
	w.later()
	w.taintsOf("with the API", "a-0 example.com/all=:None")
}

// TestDevicesWithUnknownTaintsAreUnknown: without the rules, a tainted device would seem to be free.
func TestDevicesWithUnknownTaintsAreUnknown(t *testing.T) {
	forbidden := error(apierrors.NewForbidden(taintRules, "", errors.New("no role")))
	var answer atomic.Pointer[error]
	answer.Store(&forbidden)
	w, _ := tainting(t, &answer, slice("a", "gpu", 1, 1, 1), taintRule("all", &resourcev1.DeviceTaintSelector{}, resourcev1.DeviceTaintEffectNone))
	testkit.Eventually(t, "the problem", func(context.Context) error {
		if why := w.Problem([]string{facts.DeviceFeature}); !strings.Contains(why, "DeviceTaintRules cannot be read") {
			return errors.New("it is " + why)
		}
		return nil
	})
	w.taintsOf("forbidden", "unknown")
	var none error
	answer.Store(&none)
	w.later()
	w.taintsOf("allowed", "a-0 example.com/all=:None")
	if why := w.Problem([]string{facts.DeviceFeature}); why != "" {
		t.Errorf("problem %q", why)
	}
}

// later lets the time pass until the API server is asked again.
func (w *world) later() {
	w.t.Helper()
	testkit.Eventually(w.t, "something waits", func(context.Context) error {
		if !w.clock.HasWaiters() {
			return errors.New("nothing does")
		}
		return nil
	})
	w.clock.Step(grace / 2)
}
