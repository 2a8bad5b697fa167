// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Definition holds what is read of a type's OpenAPI schema.
type Definition struct {
	Required   []string            `json:"required"`
	Properties map[string]Property `json:"properties"`
	MapType    string              `json:"x-kubernetes-map-type"`
	Kinds      []GroupVersionKind  `json:"x-kubernetes-group-version-kind"`
}

// GroupVersionKind is a kind that a definition is of.
type GroupVersionKind struct {
	Group, Version, Kind string
}

// Property holds what is read of a field's OpenAPI schema.
type Property struct {
	ListType    string   `json:"x-kubernetes-list-type"`
	ListMapKeys []string `json:"x-kubernetes-list-map-keys"`
	MapType     string   `json:"x-kubernetes-map-type"`
	Default     any      `json:"default"`
}

type openAPIDocument struct {
	Components struct {
		Schemas map[string]Definition `json:"schemas"`
	} `json:"components"`
}

func (d Definition) requires(name string) bool {
	return slices.Contains(d.Required, name)
}

// scalarDefault is a default that says more than the type's zero value does.
func (p Property) scalarDefault() any {
	switch p.Default {
	case "", false, 0.0:
		return nil
	}
	if _, isObject := p.Default.(map[string]any); isObject {
		return nil
	}
	return p.Default
}

// readOpenAPI gives the definitions of all documents, under the names that
// structName makes.
func readOpenAPI(directory string) (map[string]Definition, error) {
	files, err := filepath.Glob(filepath.Join(directory, "*.json"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no OpenAPI documents (*.json) in %q: %v", directory, err)
	}
	found := map[string]Definition{}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var document openAPIDocument
		if err := json.Unmarshal(body, &document); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for name, definition := range document.Components.Schemas {
			found[shortName(name)] = merged(found[shortName(name)], definition)
		}
	}
	return found, nil
}

// merged is a definition with the kinds of the same one in another document:
// each document names only those of its own version.
func merged(known, definition Definition) Definition {
	for _, each := range known.Kinds {
		if !slices.Contains(definition.Kinds, each) {
			definition.Kinds = append(definition.Kinds, each)
		}
	}
	return definition
}

func shortName(name string) string {
	parts := strings.Split(name, ".")
	return strings.Join(parts[max(0, len(parts)-3):], ".")
}

// registered gives the kinds of each version, also those that have no place
// in roots: a message tells them from kinds that do not exist.
func registered(definitions map[string]Definition) map[string][]string {
	found := map[string][]string{}
	for _, definition := range definitions {
		for _, each := range definition.Kinds {
			version := strings.TrimPrefix(each.Group+"/"+each.Version, "/")
			found[version] = append(found[version], each.Kind)
		}
	}
	for _, kinds := range found {
		slices.Sort(kinds)
	}
	return found
}
