// SPDX-License-Identifier: Apache-2.0

// Command internaltypes prints how Kubernetes' API server names the fields of
// its own, unversioned types when it shows a value in an error message.
//
// Each type becomes a list of [name shown, JSON name in the API, type, omitted
// when empty]. The result is src/refloat/api/internal.json.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/kubernetes/pkg/apis/batch"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/policy"
	"k8s.io/kubernetes/pkg/apis/storage"
)

type pair struct{ shown, served any }

var roots = []pair{
	{batch.Job{}, batchv1.Job{}},
	{core.Binding{}, corev1.Binding{}},
	{core.Event{}, corev1.Event{}},
	{core.Namespace{}, corev1.Namespace{}},
	{core.Node{}, corev1.Node{}},
	{core.PersistentVolume{}, corev1.PersistentVolume{}},
	{core.PersistentVolumeClaim{}, corev1.PersistentVolumeClaim{}},
	{core.PersistentVolumeSource{}, corev1.PersistentVolumeSource{}},
	{core.Pod{}, corev1.Pod{}},
	{core.Service{}, corev1.Service{}},
	{core.VolumeSource{}, corev1.VolumeSource{}},
	{policy.PodDisruptionBudget{}, policyv1.PodDisruptionBudget{}},
	{storage.VolumeAttachment{}, storagev1.VolumeAttachment{}},
}

// Leaves are types with a JSON form of their own.
var leaves = map[string]string{
	"v1.Time":            "time",
	"v1.MicroTime":       "time",
	"v1.Duration":        "duration",
	"resource.Quantity":  "quantity",
	"intstr.IntOrString": "intorstring",
	"v1.FieldsV1":        "any",
}

type member struct {
	field reflect.StructField
	name  string
	omit  bool
}

func members(t reflect.Type) []member {
	var found []member
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && tag == "" {
			found = append(found, members(f.Type)...)
			continue
		}
		if tag == "-" || !f.IsExported() {
			continue
		}
		if tag == "" {
			tag = f.Name
		}
		found = append(found, member{f, tag, strings.Contains(options, "omit")})
	}
	return found
}

var types = map[string][][4]any{}

func describe(shown, served reflect.Type) string {
	if leaf, ok := leaves[shown.String()]; ok {
		return leaf
	}
	switch shown.Kind() {
	case reflect.Pointer:
		return "*" + describe(shown.Elem(), unwrap(served, reflect.Pointer))
	case reflect.Slice:
		if shown.Elem().Kind() == reflect.Uint8 {
			return "[]byte"
		}
		return "[]" + describe(shown.Elem(), unwrap(served, reflect.Slice))
	case reflect.Map:
		return "{}" + describe(shown.Elem(), unwrap(served, reflect.Map))
	case reflect.Struct:
		return structure(shown, served)
	case reflect.Bool:
		return "bool"
	case reflect.String:
		return "string"
	default:
		return "number"
	}
}

func unwrap(t reflect.Type, kind reflect.Kind) reflect.Type {
	if t != nil && t.Kind() == kind {
		return t.Elem()
	}
	return t
}

// The unversioned types show their metadata's fields as if they were their own.
func addMetadata(byName map[string]member) {
	metadata, ok := byName["objectmeta"]
	if !ok {
		return
	}
	for _, each := range members(metadata.field.Type) {
		each.name = metadata.name + "." + each.name
		byName[strings.ToLower(each.field.Name)] = each
	}
}

// A pod's host flags are served beside its security context, not in it.
func elsewhere(shown reflect.Type, wanted member) (member, bool) {
	if shown != reflect.TypeOf(core.PodSecurityContext{}) {
		return member{}, false
	}
	for _, each := range members(reflect.TypeOf(corev1.PodSpec{})) {
		if each.field.Name == wanted.field.Name {
			each.name = "../" + each.name
			return each, true
		}
	}
	return member{}, false
}

func structure(shown, served reflect.Type) string {
	name := shown.String()
	if _, done := types[name]; done {
		return name
	}
	types[name] = nil
	byName := map[string]member{}
	if served != nil && served.Kind() == reflect.Pointer {
		served = served.Elem()
	}
	if served != nil && served.Kind() == reflect.Struct {
		for _, each := range members(served) {
			byName[strings.ToLower(each.field.Name)] = each
		}
		addMetadata(byName)
	}
	rows := [][4]any{}
	for _, each := range members(shown) {
		source, ok := byName[strings.ToLower(each.field.Name)]
		if !ok {
			source, ok = elsewhere(shown, each)
		}
		if !ok {
			fmt.Fprintln(os.Stderr, "no counterpart:", name, each.field.Name)
			os.Exit(1)
		}
		rows = append(rows, [4]any{each.name, source.name, describe(each.field.Type, source.field.Type), each.omit})
	}
	types[name] = rows
	return name
}

func main() {
	for _, root := range roots {
		describe(reflect.TypeOf(root.shown), reflect.TypeOf(root.served))
	}
	out, err := json.Marshal(types)
	if err != nil {
		panic(err)
	}
	fmt.Println(strings.ReplaceAll(string(out), "]],", "]],\n"))
}
