package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAnIdleManagerGivesMemoryBackOnce(t *testing.T) {
	const start = 40 << 20
	for name, test := range map[string]struct {
		before, given, now uint64
		want               bool
	}{
		"Start":            {0, 0, 10 << 20, false},
		"Busy":             {start, 0, start + restBytes, false},
		"AfterTheStart":    {start, 0, start + 50<<10, true},
		"Idle":             {start, start, start + 50<<10, false},
		"SmallChange":      {start + 5<<20, start, start + 5<<20, false},
		"AfterManyChanges": {start + restGarbage, start, start + restGarbage + 50<<10, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := rests(test.before, test.given, test.now); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

func TestFindsTheMemoryLimitOfItsContainer(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"None":        {nil, 0},
		"Version2":    {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "268435456\n"}, 256 << 20},
		"Unlimited2":  {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 0},
		"OfTheHost2":  {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "1048576\n"}, 1 << 20},
		"HidesTheWay": {map[string]string{"proc/self/cgroup": "0::/kubepods/a\n", "sys/fs/cgroup/memory.max": "1048576\n"}, 1 << 20},
		"Version1": {map[string]string{
			"proc/self/cgroup": "4:memory:/a\n1:cpu:/b\n0::/\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1048576\n",
		}, 1 << 20},
		"Unlimited1": {map[string]string{"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range test.files {
				path = filepath.Join(root, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := cgroupLimit(root); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}
