//go:build core

package main

var more map[string]func()
