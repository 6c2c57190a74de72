// Package rules turns facts about a node into what should be written on it.
//
// Compile turns one object into a RuleSet and reports every mistake in it at once; Link orders RuleSets into a Program; Eval
// applies a Program to the Facts of one node and gives an Outcome. Nothing here talks to a cluster, reads a clock or
// remembers anything from one node to the next but results that are the same for the same input. The controller, the
// webhook, the worker's custom rules, the scheduler extender and the command line all call these same functions.
package rules
