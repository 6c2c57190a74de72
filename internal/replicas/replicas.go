// Package replicas runs functions on the replicas of a manager.
package replicas

import "context"

// Every is a manager.Runnable that also runs on replicas that are not the leader.
type Every func(context.Context) error

// Start implements manager.Runnable.
func (f Every) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (Every) NeedLeaderElection() bool { return false }
