module github.com/assay-project/assay/hack/shell

go 1.26.0

tool (
	github.com/benhoyt/goawk
	github.com/u-root/u-root/cmds/core/basename
	github.com/u-root/u-root/cmds/core/cat
	github.com/u-root/u-root/cmds/core/date
	github.com/u-root/u-root/cmds/core/dirname
	github.com/u-root/u-root/cmds/core/find
	github.com/u-root/u-root/cmds/core/hostname
	github.com/u-root/u-root/cmds/core/id
	github.com/u-root/u-root/cmds/core/ls
	github.com/u-root/u-root/cmds/core/mkdir
	github.com/u-root/u-root/cmds/core/mktemp
	github.com/u-root/u-root/cmds/core/readlink
	github.com/u-root/u-root/cmds/core/realpath
	github.com/u-root/u-root/cmds/core/rm
	github.com/u-root/u-root/cmds/core/seq
	github.com/u-root/u-root/cmds/core/sleep
	github.com/u-root/u-root/cmds/core/strings
	github.com/u-root/u-root/cmds/core/uname
	github.com/u-root/u-root/cmds/core/uniq
	github.com/u-root/u-root/cmds/core/wc
)

require mvdan.cc/sh/v3 v3.14.1

require (
	github.com/benhoyt/goawk v1.29.1 // indirect
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/u-root/u-root v0.16.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/term v0.45.0 // indirect
)
