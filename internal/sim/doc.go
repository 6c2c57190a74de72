// Package sim runs Assay's programs against a model of the API server, in one process and in simulated time, one event at a time,
// in an order that a seed determines.
//
// It consists of tests. A seed repeatedly selects what happens next: a watch event or a response arrives, a request fails, time
// passes, a program crashes, a rule or a fact changes. Nothing else happens meanwhile, so that a seed always results in the same
// schedule. After each step, invariants are checked, and at the end, without further faults, that the Nodes match the rules and the
// facts. To run it:
//
//	make sim                   # 2,000 seeds
//	make sim SEEDS=100000      # more of them
//	make sim SEED=17           # the schedule of one seed, in readable lines
//
// FINDINGS.md describes what is simulated and what was found.
package sim
