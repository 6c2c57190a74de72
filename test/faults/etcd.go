//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
)

// alarm makes etcd behave as if its database had exceeded the quota (NOSPACE), or ends that.
func (w *world) alarm(ctx context.Context, on bool) error {
	// An alarm is of a member, and is only removed for the same one. etcd accepts one of the member 0, which JSON omits.
	request := map[string]any{"action": "DEACTIVATE", "memberID": "0", "alarm": "NOSPACE"}
	if on {
		request["action"] = "ACTIVATE"
		return w.askEtcd(ctx, "maintenance/alarm", request, nil)
	}
	var active struct {
		Alarms []struct {
			MemberID string `json:"memberID"`
		} `json:"alarms"`
	}
	if err := w.askEtcd(ctx, "maintenance/alarm", map[string]any{"action": "GET", "alarm": "NONE"}, &active); err != nil {
		return err
	}
	for _, a := range active.Alarms {
		request["memberID"] = cmp.Or(a.MemberID, "0")
		if err := w.askEtcd(ctx, "maintenance/alarm", request, nil); err != nil {
			return err
		}
	}
	return nil
}

// askEtcd sends a request to etcd's JSON API.
func (w *world) askEtcd(ctx context.Context, path string, request, response any) error {
	pair, err := tls.LoadX509KeyPair(w.File("apiserver-etcd.crt"), w.File("apiserver-etcd.key"))
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(w.File("etcd-ca.crt"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+w.EtcdAddress()+"/v3/"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	if err != nil {
		return fmt.Errorf("etcd, %s: %w", path, err)
	}
	if response == nil {
		return nil
	}
	return json.Unmarshal(text, response)
}
