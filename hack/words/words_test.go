package main

import "testing"

// TestWordsOfErrorsAndLogs has lines that the list finds, and lines that it accepts.
func TestWordsOfErrorsAndLogs(t *testing.T) {
	words := parse(list)
	for line, found := range map[string]bool{
		`return fmt.Errorf("%q is not a version", s)`:                                 true,
		`return fmt.Errorf("the effect %q is unknown", s)`:                            true,
		`return fmt.Errorf("invalid version %q: use for example 1.2.3", s)`:           false,
		`return fmt.Errorf("user %q is not allowed to use the extender", user)`:       false,
		`logf.FromContext(ctx).Info("ready", "nodes", n)`:                             true,
		`log.Error(err, "list the rules")`:                                            true,
		`w.log.Error("Stopping "+name, "error", err)`:                                 true,
		`log.Info(fmt.Sprintf("Deleted %d sets", n))`:                                 true,
		`w.log.Warn(e.Notice, "in", e.Retry)`:                                         true,
		`log.Warn(warning)`:                                                           true,
		`log.Error(err, "Cannot list rules")`:                                         false,
		`w.log.Warn("Publishing has a problem", "problem", e.Notice)`:                 false,
		`logf.FromContext(ctx).Info("Deleted NodeFeature of a deleted node", "a", b)`: false,
	} {
		got := false
		for _, w := range words {
			got = got || w.find.MatchString(line)
		}
		if got != found {
			t.Errorf("%s: found is %t", line, got)
		}
	}
}
