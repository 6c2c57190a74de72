//go:build !linux

package main

import "errors"

var errNoSandbox = errors.New("there is no Landlock outside Linux")

func enterSandbox([]uint16) (string, error) { return "", errNoSandbox }
