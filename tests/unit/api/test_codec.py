# SPDX-License-Identifier: Apache-2.0
"""The codec reads, refuses and normalizes bodies as Kubernetes does."""

import json
from typing import Any

import msgspec
import pytest

from refloat.api import codec, errors, schema, unmarshal
from refloat.api.meta import Object
from tests.cases import cases

POD = schema.struct("v1", "Pod")
JOB = schema.struct("batch/v1", "Job")
CONFIG_MAP = schema.struct("v1", "ConfigMap")
SECRET = schema.struct("v1", "Secret")
OPTIONS = schema.struct("v1", "DeleteOptions")

HANDLED = 'Pod in version "v1" cannot be handled as a Pod: '
UNRECOGNIZED = "the object provided is unrecognized (must be of type Pod): "
NO_KIND = f"{UNRECOGNIZED}couldn't get version/kind; json parse error: "
TYPE_META = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; '
    'Kind string "json:\\"kind,omitempty\\"" }'
)
QUANTITY = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


def refusal(body: str | bytes, struct: schema.Struct = POD, **how: Any) -> str:
    raw = body if isinstance(body, bytes) else body.encode()
    with pytest.raises(errors.StatusError) as error:
        codec.decode(raw, struct, **how)
    assert (error.value.code, error.value.reason) == (400, "BadRequest")
    return error.value.message


def read(body: str | bytes, struct: schema.Struct = CONFIG_MAP) -> codec.Decoded:
    return codec.decode(body if isinstance(body, bytes) else body.encode(), struct)


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("", "unexpected end of JSON input (<empty>)"),
        ("   ", "unexpected end of JSON input (202020)"),
        ("{", "unexpected end of JSON input ({)"),
        ("[1,]", "invalid character ']' looking for beginning of value (5b312c5d)"),
        (
            '{"a":1,}',
            "invalid character '}' looking for beginning of object key string ({\"a\":1,})",
        ),
        ('{"a" 1}', "invalid character '1' after object key ({\"a\" 1})"),
        ('{"a":01}', "invalid character '1' after object key:value pair ({\"a\":01})"),
        ("[1 2]", "invalid character '2' after array element (5b3120325d)"),
        ('{"a":tru}', "invalid character '}' in literal true (expecting 'e') ({\"a\":tru})"),
        ('{"a":1.}', "invalid character '}' after decimal point in numeric literal ({\"a\":1.})"),
        ('{"a":1e', "invalid character ' ' in exponent of numeric literal ({\"a\":1e)"),
        ('{"a":-}', "invalid character '}' in numeric literal ({\"a\":-})"),
        ('{"a":"\\x"}', 'invalid character \'x\' in string escape code ({"a":"\\x"})'),
        ("{'a':1}", r"invalid character '\'' looking for beginning of object key string ({'a':1})"),
        ("\x00", r"invalid character '\x00' looking for beginning of value (00)"),
        (
            '{"kind":"Pod","apiVersion":"v1"} x',
            'invalid character \'x\' after top-level value ({"kind":"Pod","apiVersion":"v1 ...)',
        ),
        ("[]", f"json: cannot unmarshal array into Go value of type {TYPE_META} (5b5d)"),
        ("5", f"json: cannot unmarshal number into Go value of type {TYPE_META} (35)"),
        (
            '{"kind":5}',
            'json: cannot unmarshal number into Go struct field .kind of type string ({"kind":5})',
        ),
    ],
)
def test_a_body_that_says_no_kind_is_unrecognized(body: str, want: str) -> None:
    assert refusal(body) == f"{NO_KIND}{want}"


@pytest.mark.parametrize(
    ("body", "want"),
    [
        (
            '{"kind":"Job","apiVersion":"batch/v1"}',
            (
                'Job in version "v1" cannot be handled as a Pod: '
                "converting (v1.Job) to (core.Pod): unknown conversion"
            ),
        ),
        (
            '{"kind":"Foo","apiVersion":"v1"}',
            (
                'Foo in version "v1" cannot be handled as a Pod: '
                'no kind "Foo" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"'
            ),
        ),
        (
            '{"kind":"Job"}',
            (
                'Job in version "v1" cannot be handled as a Pod: '
                'no kind "Job" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"'
            ),
        ),
        (
            '{"apiVersion":"batch/v1"}',
            (
                f'{HANDLED}no kind "Pod" is registered for version "batch/v1" '
                'in scheme "pkg/runtime/scheme.go:111"'
            ),
        ),
        (
            '{"kind":"Pod","apiVersion":"a/b/c"}',
            (
                f"{UNRECOGNIZED}unexpected GroupVersion string: a/b/c "
                '({"kind":"Pod","apiVersion":"a/ ...)'
            ),
        ),
        (
            '{"Kind":"Job","apiVersion":"v1"}',
            (
                'Job in version "v1" cannot be handled as a Pod: '
                'no kind "Job" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"'
            ),
        ),
        (
            '{"apiVersion":"foo/"}',
            (
                'Pod in version "" cannot be handled as a Pod: '
                "Object 'apiVersion' is missing in '{\"apiVersion\":\"foo/\"}'"
            ),
        ),
    ],
)
def test_another_kind_than_the_address_takes_is_refused(body: str, want: str) -> None:
    assert refusal(body) == want


@pytest.mark.parametrize("body", ["{}", "null", '{"kind":"Job"}', '{"apiVersion":"batch/"}'])
def test_kind_and_version_are_taken_from_the_address(body: str) -> None:
    obj = read(body, JOB).obj
    assert list(obj.items())[:2] == [("kind", "Job"), ("apiVersion", "batch/v1")]


def test_the_two_kinds_of_event_are_not_mixed() -> None:
    body = '{"kind":"Event","apiVersion":"v1"}'
    assert refusal(body, schema.struct("events.k8s.io/v1", "Event")) == (
        "the API version in the data (v1) does not match "
        "the expected API version (events.k8s.io/v1)"
    )


def test_an_eviction_of_the_older_version_is_taken() -> None:
    body = '{"kind":"Eviction","apiVersion":"policy/v1beta1","metadata":{"name":"p"}}'
    assert read(body, schema.struct("policy/v1", "Eviction")).obj["apiVersion"] == "policy/v1"


field = "json: cannot unmarshal {} into Go struct field {} of type {}".format


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ('{"spec":[]}', field("array", "Pod.spec", "v1.PodSpec")),
        (
            '{"spec":{"containers":"x"}}',
            field("string", "PodSpec.spec.containers", "[]v1.Container"),
        ),
        ('{"spec":{"containers":[5]}}', field("number", "PodSpec.spec.containers", "v1.Container")),
        (
            '{"spec":{"volumes":[{"hostPath":5}]}}',
            field("number", "Volume.spec.volumes.VolumeSource.hostPath", "v1.HostPathVolumeSource"),
        ),
        (
            '{"spec":{"nodeSelector":{"a":5}}}',
            field("number", "PodSpec.spec.nodeSelector", "string"),
        ),
        (
            '{"metadata":{"labels":["a"]}}',
            field("array", "ObjectMeta.metadata.labels", "map[string]string"),
        ),
        *(
            (
                f'{{"spec":{{"priority":{number}}}}}',
                field(f"number {number}", "PodSpec.spec.priority", "int32"),
            )
            for number in ("1.5", "1.0", "1e2", "3000000000")
        ),
        (
            '{"spec":{"activeDeadlineSeconds":1e400}}',
            field("number 1e400", "PodSpec.spec.activeDeadlineSeconds", "int64"),
        ),
        ('{"spec":{"hostNetwork":"true"}}', field("string", "PodSpec.spec.hostNetwork", "bool")),
        (
            '{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":1.5}}}]}}',
            field(
                "number 1.5",
                "HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port",
                "int32",
            ),
        ),
        (
            '{"metadata":{"creationTimestamp":5}}',
            field("number", "ObjectMeta.metadata.creationTimestamp", "string"),
        ),
        (
            '{"metadata":{"creationTimestamp":"2020-13-01T00:00:00Z"}}',
            'parsing time "2020-13-01T00:00:00Z": month out of range',
        ),
        ('{"spec":{"overhead":{"cpu":"x"}}}', QUANTITY),
        ('{"spec":{"overhead":{"cpu":true}}}', QUANTITY),
        ('{"spec":{"overhead":{"cpu":"1kk"}}}', "unable to parse quantity's suffix"),
    ],
)
def test_a_wrong_type_is_refused_in_gos_words(body: str, want: str) -> None:
    assert refusal(body) == f"{HANDLED}{want}"


def test_of_several_wrong_types_the_first_is_told() -> None:
    body = '{"metadata":{"name":5,"labels":"a"},"spec":{"containers":5}}'
    assert refusal(body) == HANDLED + field("number", "ObjectMeta.metadata.name", "string")


def test_a_bad_quantity_is_told_before_an_earlier_wrong_type() -> None:
    assert refusal('{"metadata":{"name":5},"spec":{"overhead":{"a":"x"}}}') == HANDLED + QUANTITY


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("YQ", 0),
        ("YQ=", 3),
        ("Y=", 1),
        ("=", 0),
        ("YQ==x", 4),
        ("Y Q=", 1),
        ("YWJj=", 4),
        ("YQ=x", 2),
    ],
)
def test_bad_base64_is_refused_with_its_place(text: str, at: int) -> None:
    message = refusal(json.dumps({"data": {"a": text}}), SECRET)
    assert message.endswith(f"as a Secret: illegal base64 data at input byte {at}")


@pytest.mark.parametrize(
    ("value", "want"),
    [('"YQ=="', "YQ=="), ('"Y\\nQ=="', "YQ=="), ('"YR=="', "YQ=="), ("[97]", "YQ=="), ("null", "")],
)
def test_bytes_are_written_in_one_way(value: str, want: str) -> None:
    assert read(f'{{"data":{{"a":{value}}}}}', SECRET).obj["data"] == {"a": want}


def test_fields_that_go_always_writes_are_added() -> None:
    assert read("{}", POD).obj == {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {},
        "spec": {"containers": None},
        "status": {},
    }


@cases(
    "spec want",
    {
        "null is absent": ({"priority": None}, {}),
        "empty scalars are left out": ({"nodeName": "", "hostNetwork": False}, {}),
        "zero behind a pointer stays": ({"priority": 0}, {"priority": 0}),
        "empty lists and maps are left out": ({"volumes": [], "nodeSelector": {}}, {}),
        "an empty struct behind a pointer stays": ({"affinity": {}}, {"affinity": {}}),
        "null in a map": ({"nodeSelector": {"a": None}}, {"nodeSelector": {"a": ""}}),
        "number as quantity": ({"overhead": {"cpu": 0.1}}, {"overhead": {"cpu": "100m"}}),
        "null in a list is the zero value": (
            {"containers": [None]},
            {"containers": [{"name": "", "resources": {}}]},
        ),
        "a quantity is always written": (
            {
                "volumes": [
                    {"name": "v", "downwardAPI": {"items": [{"path": "p", "resourceFieldRef": {}}]}}
                ]
            },
            {
                "volumes": [
                    {
                        "name": "v",
                        "downwardAPI": {
                            "items": [
                                {"path": "p", "resourceFieldRef": {"resource": "", "divisor": "0"}}
                            ]
                        },
                    }
                ]
            },
        ),
    },
)
def test_the_normal_form_is_gos(spec: Object, want: Object) -> None:
    pod_spec = read(json.dumps({"spec": spec}), POD).obj["spec"]
    assert pod_spec == {"containers": None, **want}


def test_times_without_value_are_null_where_go_always_writes_them() -> None:
    event = read("{}", schema.struct("v1", "Event")).obj
    assert (event["eventTime"], event["firstTimestamp"]) == (None, None)


REPEATED = (
    '{"metadata":{"name":"a","foo":1,"labels":{"a":"1","a":"2"},"name":"b"},'
    '"Data":1,"data":{"x":"1","x":"2"},"data":{"y":"3"},"Data":2}'
)


def test_unknown_and_duplicate_fields_are_told_in_the_order_of_the_body() -> None:
    decoded = read(REPEATED)
    assert decoded.problems == [
        'unknown field "metadata.foo"',
        'duplicate field "metadata.labels.a"',
        'duplicate field "metadata.name"',
        'unknown field "Data"',
        'duplicate field "data.x"',
        'duplicate field "data"',
    ]
    assert decoded.strict == ", ".join(decoded.problems)


def test_repeated_fields_are_merged_as_go_does() -> None:
    obj = read(REPEATED).obj
    assert obj["metadata"] == {"name": "b", "labels": {"a": "2"}}
    assert obj["data"] == {"x": "2", "y": "3"}


def test_null_leaves_an_earlier_scalar_and_clears_a_pointer() -> None:
    obj = read('{"metadata":{"name":"a","name":null},"immutable":true,"immutable":null}').obj
    assert obj["metadata"] == {"name": "a"}
    assert "immutable" not in obj


@pytest.mark.parametrize(
    "body",
    [
        '{"data":{"a":"1","a":"2"}}',
        '{"data" : {"a" :"1", "a"\n: "2"}}',
        '{"data":{"\\u003a":"1","\\u003a":"2"}}',
        '{"data":{"a\\\\":"1","a\\\\":"2"}}',
        '{"data":{"a":":","a":"::"}}',
    ],
)
def test_a_duplicate_is_found_however_it_is_written(body: str) -> None:
    assert len(read(body).problems) == 1


@pytest.mark.parametrize(
    "body",
    ['{"data":{"a :b":"c","a:":":x"}}', '{"data" : {"a\\"":"\\":"}}', '{"data":{"a":"\\u003a"}}'],
)
def test_colons_within_texts_are_no_duplicates(body: str) -> None:
    assert read(body).problems == []


def test_paths_of_problems_show_places_in_lists() -> None:
    body = '{"metadata":{"ownerReferences":[{},{"foo":1}]},"b\\u0000\\"☺":1}'
    assert read(body).problems == [
        'unknown field "metadata.ownerReferences[1].foo"',
        'unknown field "b\\x00\\"☺"',
    ]


def test_members_of_managed_fields_are_nobodys_problem() -> None:
    fields = '{"metadata":{"managedFields":[{"fieldsV1":{"f:x":{},"f:x":{}}}]}}'
    decoded = read(fields)
    assert decoded.problems == []
    assert decoded.obj["metadata"]["managedFields"] == [{"fieldsV1": {"f:x": {}}}]


def test_no_more_than_a_hundred_problems_are_told() -> None:
    body = json.dumps({f"x{number}": 1 for number in range(150)})
    assert len(read(body).problems) == 100


def test_strictness_turns_problems_into_an_error() -> None:
    error = codec.strict_error(read('{"a":1,"b":2}'), CONFIG_MAP)
    assert error.message == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: '
        'strict decoding error: unknown field "a", unknown field "b"'
    )


def test_bytes_that_are_no_text_become_replacement_characters() -> None:
    obj = read(b'{"data":{"x":"\xff\xfe\xe2\x82z"}}').obj
    assert obj["data"] == {"x": "\ufffd\ufffd\ufffd\ufffdz"}
    obj = read('{"data":{"x":"\\ud800A \\ud83d\\ude00 \\udc00"}}').obj
    assert obj["data"] == {"x": "\ufffdA 😀 \ufffd"}


def nested(opening: str, depth: int) -> str:
    return '{"x":' + opening * depth + "1" + ("}" if ":" in opening else "]") * depth + "}"


@pytest.mark.parametrize("opening", ['{"a":', "["])
def test_deep_nesting_is_refused(opening: str) -> None:
    assert "exceeded max depth" in refusal(nested(opening, 50_000))


@pytest.mark.parametrize("opening", ['{"a":', "["])
def test_nesting_that_some_interpreters_can_read_is_read_or_refused(opening: str) -> None:
    """What is deeper than 1,000 depends on Python's own limit; Kubernetes' is 10,000."""
    try:
        problems = read(nested(opening, 5_000)).problems
    except errors.StatusError as error:
        problems = [error.message]
    assert problems == ['unknown field "x"'] or "exceeded max depth" in problems[0]


def test_options_are_refused_without_their_kind() -> None:
    for body, want in {
        b'{"gracePeriodSeconds":"x"}': field("string", "DeleteOptions.gracePeriodSeconds", "int64"),
        b"{": "couldn't get version/kind; json parse error: unexpected end of JSON input",
        b'{"kind":"Pod","apiVersion":"v1"}': 'no kind "Pod" is registered for version "v1" '
        'in scheme "pkg/runtime/scheme.go:111"',
    }.items():
        with pytest.raises(errors.StatusError) as error:
            codec.decode_options(body, OPTIONS)
        assert error.value.message == want


@pytest.mark.parametrize("version", ["v1", "batch/v1", "meta.k8s.io/v1", "foo/v2"])
def test_options_may_be_of_any_version(version: str) -> None:
    body = json.dumps({"kind": "DeleteOptions", "apiVersion": version, "reason": "Preemption"})
    assert codec.decode_options(body.encode(), OPTIONS).obj["reason"] == "Preemption"


def test_a_parsed_object_of_a_wrong_type_is_a_mismatch() -> None:
    with pytest.raises(unmarshal.Mismatch) as error:
        codec.convert({"spec": {"priority": 1.5}}, POD)
    assert str(error.value) == field("number 1.5", "PodSpec.spec.priority", "int32")


def test_converting_leaves_the_given_object_alone() -> None:
    body = {"metadata": {"labels": {"a": "b"}, "name": ""}, "foo": 1}
    decoded = codec.convert(body, CONFIG_MAP)
    decoded.obj["metadata"]["labels"]["a"] = "c"
    assert body == {"metadata": {"labels": {"a": "b"}, "name": ""}, "foo": 1}
    assert decoded.problems == ['unknown field "foo"']


def test_encoding_is_compact() -> None:
    assert codec.encode({"a": [1, "<é>"]}) == '{"a":[1,"<é>"]}'.encode()
    assert msgspec.json.decode(codec.encode({"a": None})) == {"a": None}
