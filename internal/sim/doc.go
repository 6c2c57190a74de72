// Package sim runs Assay's programs against a model of the API server, in one process and in simulated time, one event at a time as a seed
// chooses.
//
// All of it is tests. A seed chooses, again and again, one of the things that can happen next: a watch event or an answer arrives, a
// request fails, time passes, a program crashes, a rule or a fact changes. Nothing else happens meanwhile, so that a seed always gives the
// same story. After each step it is checked that no promise is broken, and at the end, without further faults, that the Nodes are
// what the rules make of the facts. To run it:
//
//	make sim                   # 2,000 seeds
//	make sim SEEDS=100000      # more of them
//	make sim SEED=17           # the story of one, in readable lines
//
// docs/robustness.md says what is simulated and what was found.
package sim
