package machine

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"

	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// stalled is a source that takes a while and finds one flag.
type stalled struct {
	name string
	took time.Duration
}

func (s stalled) Name() string { return s.name }

func (s stalled) Discover(context.Context, host.Host) (discovery.Result, error) {
	time.Sleep(s.took)
	r := discovery.NewResult()
	r.Flags(s.name+".found", []string{"yes"})
	return r, nil
}

// TestASingleAnswerWaitsForASlowSource: a command that reads a machine once left out a source that took longer than two seconds, and
// exited with 0.
func TestASingleAnswerWaitsForASlowSource(t *testing.T) {
	tests := map[string]struct {
		stall time.Duration
		args  []string
		found bool
		text  string
		exit  int
	}{
		"fast":                            {stall: time.Second, found: true},
		"a stall of 2.6 s":                {stall: 2600 * time.Millisecond, found: true, text: "Waiting for source pci…\n"},
		"longer than the reads of a loop": {stall: 90 * time.Second, args: []string{"--timeout=2m"}, found: true, text: "Waiting for source pci…\n"},
		"longer than the limit": {
			stall: 90 * time.Second, text: "Waiting for source pci…\nassay: source pci did not answer within 1m0s; --timeout sets another limit\n",
			exit: cli.ExitFound,
		},
		"longer than a short limit": {
			stall: 2 * time.Second, args: []string{"--timeout=1s"}, text: "assay: source pci did not answer within 1s; --timeout sets another limit\n",
			exit: cli.ExitFound,
		},
		"an invalid limit": {args: []string{"--timeout=-1s"}, text: "assay: invalid --timeout -1s: use for example 90s\n", exit: cli.ExitUsage},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var f Flags
				flags := pflag.NewFlagSet("scan", pflag.ContinueOnError)
				f.AddFlags(flags)
				if err := flags.Parse(tt.args); err != nil {
					t.Fatal(err)
				}
				sources := []discovery.Source{stalled{"cpu", 0}, stalled{"pci", tt.stall}, stalled{"usb", 0}}
				runner := discovery.NewRunner(host.Host{}, sources, discovery.Everything)
				var said bytes.Buffer
				report, err := f.Complete(t.Context(), runner, &said, &said)
				var found cli.FoundError
				exit := 0
				if err != nil {
					said.WriteString("assay: " + err.Error() + "\n")
					if exit = cli.ExitUsage; errors.As(err, &found) {
						exit = cli.ExitFound
					}
				}
				if exit != tt.exit || said.String() != tt.text {
					t.Errorf("exit code %d, output %q; want %d and %q", exit, said.String(), tt.exit, tt.text)
				}
				if tt.found && len(report.Features.Flags) != len(sources) {
					t.Errorf("features %v, want those of all three sources", report.Features.Flags)
				}
				time.Sleep(tt.stall) // simulated time: lets the goroutine of the source end
			})
		})
	}
}

// TestInterruptedWhileASourceIsSlow: the error of an interruption blames no source.
func TestInterruptedWhileASourceIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		runner := discovery.NewRunner(host.Host{}, []discovery.Source{stalled{"pci", 10 * time.Second}}, discovery.Everything)
		_, err := (&Flags{}).Complete(ctx, runner, &bytes.Buffer{}, &bytes.Buffer{})
		var found cli.FoundError
		if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &found) {
			t.Errorf("error %v, want that of the context", err)
		}
		time.Sleep(10 * time.Second)
	})
}
