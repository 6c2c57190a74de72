// Package rules evaluates rules on the facts of a node and computes the outputs to write on it.
//
// Compile compiles one object to a RuleSet and reports all of its errors at once. Link orders RuleSets into a Program. Eval applies
// a Program to the Facts of one node and returns an Outcome. The package does not talk to a cluster or read a clock, and keeps no
// state between nodes. The controller, the webhook, the worker's custom rules, the scheduler extender and
// the command line all use it.
package rules
