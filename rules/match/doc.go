// Package match decides whether the facts of a node satisfy the terms of a rule.
package match
