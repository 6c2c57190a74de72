// Package rules evaluates rules on the facts of a node and computes the outputs to write on it.
//
// Compile compiles one object to a RuleSet and reports all errors in it at once; Link orders RuleSets into a Program;
// Eval applies a Program to the Facts of one node and returns an Outcome. The package does not talk to a cluster or
// read a clock, and it keeps no state between nodes except cached results, which are the same for the same input. The
// controller, the webhook, the worker's custom rules, the scheduler extender and the command line all call these
// functions.
package rules
