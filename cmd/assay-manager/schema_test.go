package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/rules/schema"
)

func TestSchemaHasTheKeysThatAreRead(t *testing.T) {
	data, err := schema.Of(schema.ControllerConfiguration)
	if err != nil {
		t.Fatal(err)
	}
	var s map[string]any
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	documented, read := map[string]bool{}, map[string]bool{}
	keysOfSchema(s, "", documented)
	keysOfStruct(reflect.TypeFor[settings](), "", read)
	if diff := cmp.Diff(read, documented); diff != "" {
		t.Errorf("keys (-read +schema):\n%s", diff)
	}
}

func keysOfSchema(s map[string]any, path string, into map[string]bool) {
	properties, _ := s["properties"].(map[string]any)
	for name, p := range properties {
		key := path + strings.ToLower(name)
		into[key] = true
		keysOfSchema(p.(map[string]any), key+".", into)
	}
}

func keysOfStruct(t reflect.Type, path string, into map[string]bool) {
	for field := range t.Fields() {
		key := path + strings.ToLower(field.Name)
		into[key] = true
		switch field.Type {
		case reflect.TypeFor[leaderElection](), reflect.TypeFor[restrictions](), reflect.TypeFor[removalBudget](), reflect.TypeFor[noExecuteBudget]():
			keysOfStruct(field.Type, key+".", into)
		}
	}
}
