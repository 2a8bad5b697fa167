// SPDX-License-Identifier: Apache-2.0

// Command schema writes the facts about Kubernetes' API types that Refloat
// needs: the names and types of fields, when they are left out of the JSON,
// and how lists and maps merge. The first come from the Go types by
// reflection; what server-side apply needs is not in the Go types and comes
// from OpenAPI v3 documents. The numbers of the fields in protobuf go into a
// file of their own. README.md says how to run it.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Flags of a field, one bit each; schema.py reads them.
const (
	flagPointer = 1 << iota
	flagOmit
	flagRequired
)

// Document is schema.json. A type is named by its place in Types, so that
// each is written once.
type Document struct {
	Version    string              `json:"version"`
	Kinds      map[string]string   `json:"kinds"`
	Registered map[string][]string `json:"registered"`
	Types      [][]any             `json:"types"`
	Structs    map[string]Struct   `json:"structs"`
}

// Struct is a type with named fields, in the order of its JSON.
type Struct struct {
	Go     string  `json:"go"`
	Atomic bool    `json:"atomic,omitempty"`
	Fields [][]any `json:"fields"`
}

// Extras are the facts that most fields do not have.
type Extras struct {
	Strategy string   `json:"s,omitempty"`
	MergeKey string   `json:"k,omitempty"`
	ListType string   `json:"l,omitempty"`
	MapKeys  []string `json:"m,omitempty"`
	MapType  string   `json:"t,omitempty"`
	Default  any      `json:"d,omitempty"`
	Inlined  string   `json:"i,omitempty"`
}

// leaves are the types with a JSON form of their own.
var leaves = map[reflect.Type]string{
	reflect.TypeFor[resource.Quantity]():    "quantity",
	reflect.TypeFor[metav1.Time]():          "time",
	reflect.TypeFor[metav1.MicroTime]():     "microtime",
	reflect.TypeFor[metav1.Duration]():      "duration",
	reflect.TypeFor[intstr.IntOrString]():   "intorstring",
	reflect.TypeFor[metav1.FieldsV1]():      "fieldsv1",
	reflect.TypeFor[runtime.RawExtension](): "any",
}

type generator struct {
	document Document
	places   map[reflect.Type]int
	openapi  map[string]Definition
}

func main() {
	log.SetFlags(0)
	directory := flag.String("openapi", "", "directory with OpenAPI v3 documents of an API server")
	version := flag.String("kubernetes", "", "version of Kubernetes that the facts are of")
	protobuf := flag.String("protobuf", "", "file for the field numbers")
	flag.Parse()
	definitions, err := readOpenAPI(*directory)
	if err != nil {
		log.Fatal(err)
	}
	made := generate(*version, definitions)
	if err := json.NewEncoder(os.Stdout).Encode(made.document); err != nil {
		log.Fatal(err)
	}
	if err := made.writeNumbers(*protobuf); err != nil {
		log.Fatal(err)
	}
}

func generate(version string, openapi map[string]Definition) generator {
	g := generator{
		document: Document{
			Version:    version,
			Kinds:      map[string]string{},
			Registered: registered(openapi),
			Structs:    map[string]Struct{},
		},
		places:  map[reflect.Type]int{},
		openapi: openapi,
	}
	for _, each := range roots {
		kind := reflect.TypeOf(each.object)
		g.place(kind)
		g.document.Kinds[each.apiVersion+" "+kind.Name()] = structName(kind)
	}
	return g
}

// place gives a type's number, and describes the type when it is new.
func (g *generator) place(t reflect.Type) int {
	if known, ok := g.places[t]; ok {
		return known
	}
	number := len(g.document.Types)
	g.places[t] = number
	g.document.Types = append(g.document.Types, nil)
	g.document.Types[number] = g.describe(t)
	return number
}

func (g *generator) describe(t reflect.Type) []any {
	if leaf, ok := leaves[t]; ok {
		return []any{leaf, t.String()}
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int32, reflect.Int64, reflect.Float64:
		return []any{t.Kind().String(), t.String()}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return []any{"bytes", t.String()}
		}
		return []any{"list", t.String(), g.place(t.Elem())}
	case reflect.Map:
		return []any{"map", t.String(), g.place(t.Elem())}
	case reflect.Struct:
		g.document.Structs[structName(t)] = g.structOf(t)
		return []any{"struct", structName(t)}
	}
	panic(fmt.Sprintf("no rule for %s", t))
}

func (g *generator) structOf(t reflect.Type) Struct {
	definition := g.openapi[structName(t)]
	made := Struct{Go: t.String(), Atomic: definition.MapType == "atomic", Fields: [][]any{}}
	for _, field := range flatten(t, "") {
		made.Fields = append(made.Fields, g.field(field, definition))
	}
	return made
}

// member is a field, and the Go names of the inlined structs that it is from.
type member struct {
	reflect.StructField
	inlined string
}

// flatten gives the fields of a struct with those of inlined structs in place.
func flatten(t reflect.Type, inlined string) []member {
	var fields []member
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && field.Anonymous:
			fields = append(fields, flatten(field.Type, inlined+field.Name+".")...)
		case name == "":
			panic(fmt.Sprintf("%s.%s has no JSON name", t, field.Name))
		default:
			fields = append(fields, member{field, inlined})
		}
	}
	return fields
}

func (g *generator) field(field member, definition Definition) []any {
	name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
	property := definition.Properties[name]
	kind, flags := field.Type, 0
	if omits(kind, options) {
		flags |= flagOmit
	}
	if kind.Kind() == reflect.Pointer {
		flags |= flagPointer
		kind = kind.Elem()
	}
	if definition.requires(name) {
		flags |= flagRequired
	}
	row := []any{name, g.place(kind), flags}
	extras := Extras{
		Strategy: field.Tag.Get("patchStrategy"),
		MergeKey: field.Tag.Get("patchMergeKey"),
		ListType: property.ListType,
		MapKeys:  property.ListMapKeys,
		MapType:  property.MapType,
		Default:  property.scalarDefault(),
		Inlined:  field.inlined,
	}
	if !reflect.ValueOf(extras).IsZero() {
		row = append(row, extras)
	}
	return row
}

// omits tells whether an empty value is left out; Go never leaves out a
// struct for omitempty.
func omits(t reflect.Type, options string) bool {
	for option := range strings.SplitSeq(options, ",") {
		if option == "omitzero" || option == "omitempty" && t.Kind() != reflect.Struct {
			return true
		}
	}
	return false
}

// structName is unique: the last two parts of the package and the type.
func structName(t reflect.Type) string {
	parts := strings.Split(filepath.ToSlash(t.PkgPath()), "/")
	return strings.Join(append(parts[len(parts)-2:], t.Name()), ".")
}
