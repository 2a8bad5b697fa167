// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
)

// numbers are the rows of protobuf.json by the names of structs. A row is
// [number, JSON name, Go name], without the last where that is the JSON name
// with a capital; an inlined struct is [number, "", Go name, struct]. How a
// value is written follows from its type: the tags of some fields are wrong
// there, and Kubernetes goes by the type too.
type numbers map[string][][]any

// writeNumbers writes the field numbers of all structs that have been placed.
func (g *generator) writeNumbers(file string) error {
	made := numbers{}
	for t := range g.places {
		if _, leaf := leaves[t]; !leaf && t.Kind() == reflect.Struct {
			made.add(t)
		}
	}
	text, err := json.Marshal(made)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

func (n numbers) add(t reflect.Type) {
	rows := [][]any{}
	for i := range t.NumField() {
		field := t.Field(i)
		if tag := field.Tag.Get("protobuf"); tag != "" {
			rows = append(rows, n.row(field, strings.Split(tag, ",")))
		} else if field.Name != "TypeMeta" {
			panic(fmt.Sprintf("%s.%s has no protobuf tag", t, field.Name))
		}
	}
	n[structName(t)] = rows
}

func (n numbers) row(field reflect.StructField, tag []string) []any {
	number, err := strconv.Atoi(tag[1])
	if err != nil {
		panic(fmt.Sprintf("no number for %s: %v", field.Name, tag))
	}
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	switch {
	case name == "":
		n.add(field.Type)
		return []any{number, "", field.Name, structName(field.Type)}
	case strings.ToUpper(name[:1])+name[1:] == field.Name:
		return []any{number, name}
	}
	return []any{number, name, field.Name}
}
