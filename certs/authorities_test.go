package certs

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestAuthoritiesTakeOverWhatChangesAndKeepTheLastGood(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	write := func(data []byte) {
		t.Helper()
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bundle := func() []byte {
		t.Helper()
		a, err := newAuthority(start, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return encodeCerts(a.cert.Raw)
	}
	if _, err := NewAuthorities(file, nil); err == nil {
		t.Error("a file that does not exist is accepted")
	}
	write([]byte("no certificate"))
	if _, err := NewAuthorities(file, nil); err == nil {
		t.Error("a file without certificates is accepted")
	}
	write(bundle())
	var reports []error
	a, err := NewAuthorities(file, func(err error) { reports = append(reports, err) })
	if err != nil {
		t.Fatal(err)
	}
	first := a.Pool()
	if again := a.Pool(); !first.Equal(again) {
		t.Error("an unchanged file gives other authorities")
	}
	write(nil)
	for range 3 {
		if kept := a.Pool(); !first.Equal(kept) {
			t.Error("an empty file replaces good authorities")
		}
	}
	if len(reports) != 1 {
		t.Errorf("the reports are %v, want one", reports)
	}
	write(bundle())
	if next := a.Pool(); first.Equal(next) {
		t.Error("new authorities are not taken over")
	}
}
