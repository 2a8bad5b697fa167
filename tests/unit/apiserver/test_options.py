# SPDX-License-Identifier: Apache-2.0
"""The options of requests; the refusals are a Kubernetes API server's."""

from typing import Any

import pytest

from refloat.apiserver import applying, options
from refloat.apiserver.deletion import Options
from tests.refusals import refusal
from tests.worlds import query

MATCH = "resourceVersionMatch"
UNLESS = f"{MATCH}: Forbidden: {MATCH} is forbidden unless resourceVersion is provided"
CONTINUED = f"{MATCH}: Forbidden: {MATCH} is forbidden when continue is provided"
EXACT_ZERO = f'{MATCH}: Forbidden: {MATCH} "exact" is forbidden for resourceVersion "0"'
ONLY_WITH = (
    f"{MATCH}: Forbidden: {MATCH} is forbidden for watch unless sendInitialEvents is provided"
)
REQUIRES = f"{MATCH}: Forbidden: sendInitialEvents requires setting {MATCH} to NotOlderThan"
TOO_LARGE = "99999999999999999999"
LONG = "9" * 5000  # more digits than Python's own `int` takes
ZEROS = "0" * 5000
INITIAL = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"


def unsupported(value: str, *supported: str) -> str:
    listed = ", ".join(f'"{each}"' for each in supported)
    return f'{MATCH}: Unsupported value: "{value}": supported values: {listed}'


def invalid(kind: str, *texts: str) -> str:
    shown = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return f'{kind}.meta.k8s.io "" is invalid: {shown}'


# -- writes -----------------------------------------------------------------


def test_plain_write_asks_for_nothing() -> None:
    assert options.write_options(query(), "CreateOptions") == options.WriteOptions(
        dry_run=False, manager="", validation="Warn", force=False
    )


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        pytest.param(
            "dryRun=x",
            ['dryRun: Unsupported value: ["x"]: supported values: "All"'],
            id="a dry run of something",
        ),
        pytest.param(
            "dryRun=",
            ['dryRun: Unsupported value: [""]: supported values: "All"'],
            id="a dry run of nothing",
        ),
        pytest.param(
            "dryRun=All&dryRun=x",
            ['dryRun: Unsupported value: ["All","x"]: supported values: "All"'],
            id="two dry runs",
        ),
        pytest.param(
            "fieldManager=" + "x" * 129,
            ["fieldManager: Too long: may not be more than 128 bytes"],
            id="a long manager",
        ),
        pytest.param(
            "fieldManager=a\u00adb\x01",
            [
                (
                    'fieldManager: Invalid value: "a\\u00adb\\x01": '
                    "invalid character U+00AD (at position 1)"
                ),
                (
                    'fieldManager: Invalid value: "a\\u00adb\\x01": '
                    "invalid character U+0001 (at position 4)"
                ),
            ],
            id="a manager that cannot be printed",
        ),
        pytest.param(
            "fieldValidation=strict",
            [
                (
                    'fieldValidation: Unsupported value: "strict": '
                    'supported values: "", "Ignore", "Strict", "Warn"'
                )
            ],
            id="another validation",
        ),
        pytest.param(
            "fieldValidation=x&dryRun=y&fieldManager=\x01",
            [
                'fieldManager: Invalid value: "\\x01": invalid character U+0001 (at position 0)',
                'dryRun: Unsupported value: ["y"]: supported values: "All"',
                (
                    'fieldValidation: Unsupported value: "x": '
                    'supported values: "", "Ignore", "Strict", "Warn"'
                ),
            ],
            id="everything at once, in order",
        ),
    ],
)
def test_write_is_refused_for(text: str, mistakes: list[str]) -> None:
    with refusal(422, invalid("PatchOptions", *mistakes)):
        options.write_options(query(text), "PatchOptions")


def test_mistakes_that_were_found_before_are_told_first() -> None:
    found = applying.option_mistakes(query("force=true"), is_apply=False)
    mistakes = [
        "force: Forbidden: may not be specified for non-apply patch",
        'dryRun: Unsupported value: ["x"]: supported values: "All"',
    ]
    with refusal(422, invalid("PatchOptions", *mistakes)):
        options.write_options(query("dryRun=x"), "PatchOptions", found)


@pytest.mark.parametrize("text", ["dryRun=All", "dryRun=All&dryRun=All"])
def test_dry_run_is_asked_for_by(text: str) -> None:
    assert options.write_options(query(text), "CreateOptions").dry_run


@pytest.mark.parametrize(
    ("value", "want"),
    [("true", True), ("", True), ("no", True), ("0", False), ("false", False), ("False", False)],
)
def test_switch_is_on_with_any_value_but_a_plain_no(value: str, want: bool) -> None:
    assert options.flag(query(watch=value), "watch") is want


def test_switch_is_off_when_it_is_not_there() -> None:
    assert not options.flag(query(), "watch")


# -- lists ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        pytest.param(f"{MATCH}=Exact", [UNLESS], id="a match of nothing"),
        pytest.param(
            f"{MATCH}=x", [UNLESS, unsupported("x", "Exact", "NotOlderThan", "")], id="unknown"
        ),
        pytest.param(
            f"{MATCH}=exact&resourceVersion=5",
            [unsupported("exact", "Exact", "NotOlderThan", "")],
            id="in lower case",
        ),
        pytest.param(f"{MATCH}=Exact&resourceVersion=0", [EXACT_ZERO], id="exactly anything"),
        pytest.param(f"{MATCH}=Exact&continue=x", [UNLESS, CONTINUED], id="a match that goes on"),
        pytest.param("sendInitialEvents=true", [INITIAL], id="initial events"),
        pytest.param(
            f"sendInitialEvents=false&{MATCH}=NotOlderThan",
            [UNLESS, INITIAL],
            id="no initial events",
        ),
    ],
)
def test_list_is_refused_for(text: str, mistakes: list[str]) -> None:
    with refusal(422, invalid("ListOptions", *mistakes)):
        options.list_options(query(text), watch=False)


EQUALS = "found '=', expected: ',' or 'end of string'"


def test_token_brings_its_own_revision() -> None:
    message = "specifying resource version is not allowed when using continue"
    with refusal(400, message):
        assert options.list_options(query("continue=x&resourceVersion=5"), watch=False).revision
    assert options.list_options(query("continue=x&resourceVersion=0"), watch=False).token == "x"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("limit=x", 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("limit=1.5", 'strconv.ParseInt: parsing "1.5": invalid syntax'),
        (
            "limit=99999999999999999999",
            'strconv.ParseInt: parsing "99999999999999999999": value out of range',
        ),
        (f"limit={LONG}", f'strconv.ParseInt: parsing "{LONG}": value out of range'),
        (f"timeoutSeconds={LONG}", f'strconv.ParseInt: parsing "{LONG}": value out of range'),
        ("timeoutSeconds=x", 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("limit=x&timeoutSeconds=y", 'strconv.ParseInt: parsing "y": invalid syntax'),
        ("limit=x&labelSelector=a=b=c", 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("fieldSelector=x&labelSelector=a=b=c", EQUALS),
        ("resourceVersionMatch=x&labelSelector=a=b=c", EQUALS),
        ("resourceVersionMatch=x&fieldSelector=x", "invalid selector: 'x'; can't understand 'x'"),
        ("resourceVersion=x&labelSelector=a=b=c", EQUALS),
        (
            "resourceVersion=x",
            (
                'invalid resource version: resourceVersion: Invalid value: "x": '
                'strconv.ParseUint: parsing "x": invalid syntax'
            ),
        ),
        (
            f"resourceVersion={TOO_LARGE}",
            (
                f'invalid resource version: resourceVersion: Invalid value: "{TOO_LARGE}": '
                f'strconv.ParseUint: parsing "{TOO_LARGE}": value out of range'
            ),
        ),
    ],
)
def test_first_of_a_lists_mistakes_is_told(text: str, message: str) -> None:
    with refusal(400, message):
        assert options.list_options(query(text), watch=False).revision


@pytest.mark.parametrize(
    ("text", "want"), [("+3", 3), ("-1", 0), ("", 0), ("7", 7), (f"{ZEROS}5", 5)]
)
def test_limit_is_read_as_go_reads_numbers(text: str, want: int) -> None:
    assert options.list_options(query(limit=text), watch=False).limit == want


@pytest.mark.parametrize(("text", "want"), [("", None), ("0", 0), ("12", 12), (f"{ZEROS}5", 5)])
def test_revision_of_nothing_differs_from_any(text: str, want: int | None) -> None:
    assert options.list_options(query(resourceVersion=text), watch=False).revision == want


# -- watches ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        pytest.param(
            f"{MATCH}=Exact",
            [ONLY_WITH, unsupported("Exact", "NotOlderThan")],
            id="a match without initial events",
        ),
        pytest.param("sendInitialEvents=true", [REQUIRES], id="initial events without a match"),
        pytest.param(
            f"sendInitialEvents=true&{MATCH}=x",
            [REQUIRES, unsupported("x", "NotOlderThan")],
            id="an unknown match",
        ),
        pytest.param("continue=x", [CONTINUED], id="a token for the state"),
        pytest.param("continue=x&resourceVersion=0", [CONTINUED], id="a token for any state"),
        pytest.param(
            f"continue=x&sendInitialEvents=true&{MATCH}=x&resourceVersion=5",
            [REQUIRES, unsupported("x", "NotOlderThan"), CONTINUED],
            id="everything at once",
        ),
    ],
)
def test_watch_is_refused_for(text: str, mistakes: list[str]) -> None:
    with refusal(422, invalid("ListOptions", *mistakes)):
        options.list_options(query(text), watch=True)


def test_watch_from_a_revision_passes_over_a_token() -> None:
    assert options.list_options(query("continue=x&resourceVersion=5"), watch=True).revision == 5


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x", "invalid syntax"),
        ("-1", "invalid syntax"),
        (TOO_LARGE, "value out of range"),
        (LONG, "value out of range"),
    ],
)
def test_revision_of_a_watch_is_refused(text: str, what: str) -> None:
    message = (
        f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": {what}'
    )
    with refusal(500, message):
        assert options.list_options(query(resourceVersion=text), watch=True).revision


# -- deletes ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "body", "want"),
    [
        pytest.param("", b"", Options(), id="nothing"),
        pytest.param("gracePeriodSeconds=-5", b"", Options(grace_seconds=-5), id="a period"),
        pytest.param("propagationPolicy=Orphan", b"", Options(propagation="Orphan"), id="a policy"),
        pytest.param(
            "orphanDependents=maybe",
            b"",
            Options(propagation="Orphan", orphans=True),
            id="the older policy",
        ),
        pytest.param(
            "orphanDependents=0",
            b"",
            Options(propagation="Background", orphans=False),
            id="the older policy off",
        ),
        pytest.param("dryRun=All&reason=Why", b"", Options(dry_run=True, reason="Why"), id="more"),
        pytest.param(
            "gracePeriodSeconds=5&dryRun=nonsense",
            b'{"gracePeriodSeconds":7}',
            Options(grace_seconds=7),
            id="a body takes the place of the query",
        ),
        pytest.param(
            "uid=u&resourceVersion=3",
            b"",
            Options(uid="u", resource_version="3"),
            id="preconditions in the query",
        ),
        pytest.param(
            "uid=u&resourceVersion=3", b"{}", Options(), id="a body without preconditions"
        ),
        pytest.param(
            "",
            b'{"preconditions":{"uid":"u","resourceVersion":"3"},"dryRun":["All","All"]}',
            Options(uid="u", resource_version="3", dry_run=True),
            id="a body",
        ),
    ],
)
def test_delete_asks_for(text: str, body: bytes, want: Options) -> None:
    assert options.delete_options(query(text), body, "json") == want


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        pytest.param(
            "propagationPolicy=",
            'propagationPolicy: Unsupported value: "": '
            'supported values: "Foreground", "Background", "Orphan", "nil"',
            id="no policy",
        ),
        pytest.param(
            "propagationPolicy=Orphan&orphanDependents=true",
            'propagationPolicy: Invalid value: "Orphan": '
            "orphanDependents and deletionPropagation cannot be both set",
            id="two policies",
        ),
        pytest.param(
            "propagationPolicy=x&orphanDependents=true",
            '[propagationPolicy: Invalid value: "x": '
            "orphanDependents and deletionPropagation cannot be both set, "
            'propagationPolicy: Unsupported value: "x": '
            'supported values: "Foreground", "Background", "Orphan", "nil"]',
            id="two policies, and one unknown",
        ),
        pytest.param(
            "dryRun=", 'dryRun: Unsupported value: [""]: supported values: "All"', id="no dry run"
        ),
        pytest.param(
            f"reason={'x' * 1025}",
            "reason: Too long: may not be more than 1024 bytes",
            id="a reason that is a story",
        ),
    ],
)
def test_delete_is_refused_for(text: str, mistake: str) -> None:
    with refusal(422, invalid("DeleteOptions", mistake)):
        options.delete_options(query(text), b"", "json")


# -- evictions (behaviour C6.1) ---------------------------------------------


@pytest.mark.parametrize(
    ("given", "dry_run", "want"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"dryRun": ["All"]}, False, True),
        ({"dryRun": ["All"]}, True, True),
        ({"dryRun": []}, True, True),
    ],
)
def test_eviction_is_dry_by_either_word(given: Any, dry_run: bool, want: bool) -> None:
    assert options.eviction_options("p", given, dry_run=dry_run).dry_run is want


def test_eviction_refuses_two_words_on_dryness() -> None:
    message = "Non-matching dry-run options in request and content: [All] and [x]"
    with refusal(500, message):
        options.eviction_options("p", {"dryRun": ["x"]}, dry_run=True)


def test_eviction_cannot_pass_over_broken_storage() -> None:
    where = "ignoreStoreReadErrorWithClusterBreakingPotential"
    message = (
        f'Eviction.policy "p" is invalid: deleteOptions.{where}: Invalid value: true: '
        "can not be set for pod eviction, try after removing the option"
    )
    with refusal(422, message):
        options.eviction_options("p", {where: True}, dry_run=False)
