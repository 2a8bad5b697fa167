# SPDX-License-Identifier: Apache-2.0
"""The options of requests; the refusals are a Kubernetes API server's."""

from typing import Any

import pytest

from refloat.apiserver import apply_verb, options
from refloat.apiserver.deletion import Options
from tests.apiserver_fixture import query
from tests.cases import cases
from tests.refusals import refusal

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
    values = ", ".join(f'"{each}"' for each in supported)
    return f'{MATCH}: Unsupported value: "{value}": supported values: {values}'


def invalid(kind: str, *texts: str) -> str:
    causes = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return f'{kind}.meta.k8s.io "" is invalid: {causes}'


# -- writes -----------------------------------------------------------------


def test_plain_write_asks_for_nothing() -> None:
    assert options.write_options(query(), "CreateOptions") == options.WriteOptions(
        dry_run=False, manager="", validation="Warn", force=False
    )


DRY_RUN = 'dryRun: Unsupported value: [{}]: supported values: "All"'


@cases(
    "text mistakes",
    {
        "a dry run of something": ("dryRun=x", [DRY_RUN.format('"x"')]),
        "a dry run of nothing": ("dryRun=", [DRY_RUN.format('""')]),
        "two dry runs": ("dryRun=All&dryRun=x", [DRY_RUN.format('"All","x"')]),
        "a long manager": (
            "fieldManager=" + "x" * 129,
            ["fieldManager: Too long: may not be more than 128 bytes"],
        ),
        "a manager that cannot be printed": (
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
        ),
        "another validation": (
            "fieldValidation=strict",
            [
                (
                    'fieldValidation: Unsupported value: "strict": '
                    'supported values: "", "Ignore", "Strict", "Warn"'
                )
            ],
        ),
        "everything at once, in order": (
            "fieldValidation=x&dryRun=y&fieldManager=\x01",
            [
                'fieldManager: Invalid value: "\\x01": invalid character U+0001 (at position 0)',
                'dryRun: Unsupported value: ["y"]: supported values: "All"',
                (
                    'fieldValidation: Unsupported value: "x": '
                    'supported values: "", "Ignore", "Strict", "Warn"'
                ),
            ],
        ),
    },
)
def test_write_is_refused_for(text: str, mistakes: list[str]) -> None:
    with refusal(422, invalid("PatchOptions", *mistakes)):
        options.write_options(query(text), "PatchOptions")


def test_mistakes_that_were_found_before_are_told_first() -> None:
    first = apply_verb.option_mistakes(query("force=true"), is_apply=False)
    mistakes = [
        "force: Forbidden: may not be specified for non-apply patch",
        'dryRun: Unsupported value: ["x"]: supported values: "All"',
    ]
    with refusal(422, invalid("PatchOptions", *mistakes)):
        options.write_options(query("dryRun=x"), "PatchOptions", first)


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


@cases(
    "text mistakes",
    {
        "a match of nothing": (f"{MATCH}=Exact", [UNLESS]),
        "unknown": (f"{MATCH}=x", [UNLESS, unsupported("x", "Exact", "NotOlderThan", "")]),
        "in lower case": (
            f"{MATCH}=exact&resourceVersion=5",
            [unsupported("exact", "Exact", "NotOlderThan", "")],
        ),
        "exactly anything": (f"{MATCH}=Exact&resourceVersion=0", [EXACT_ZERO]),
        "a match that goes on": (f"{MATCH}=Exact&continue=x", [UNLESS, CONTINUED]),
        "initial events": ("sendInitialEvents=true", [INITIAL]),
        "no initial events": (f"sendInitialEvents=false&{MATCH}=NotOlderThan", [UNLESS, INITIAL]),
    },
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


@cases(
    "text mistakes",
    {
        "a match without initial events": (
            f"{MATCH}=Exact",
            [ONLY_WITH, unsupported("Exact", "NotOlderThan")],
        ),
        "initial events without a match": ("sendInitialEvents=true", [REQUIRES]),
        "an unknown match": (
            f"sendInitialEvents=true&{MATCH}=x",
            [REQUIRES, unsupported("x", "NotOlderThan")],
        ),
        "a token for the state": ("continue=x", [CONTINUED]),
        "a token for any state": ("continue=x&resourceVersion=0", [CONTINUED]),
        "everything at once": (
            f"continue=x&sendInitialEvents=true&{MATCH}=x&resourceVersion=5",
            [REQUIRES, unsupported("x", "NotOlderThan"), CONTINUED],
        ),
    },
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


@cases(
    "text body want",
    {
        "nothing": ("", b"", Options()),
        "a period": ("gracePeriodSeconds=-5", b"", Options(grace_seconds=-5)),
        "a policy": ("propagationPolicy=Orphan", b"", Options(propagation="Orphan")),
        "the older policy": (
            "orphanDependents=maybe",
            b"",
            Options(propagation="Orphan", orphans=True),
        ),
        "the older policy off": (
            "orphanDependents=0",
            b"",
            Options(propagation="Background", orphans=False),
        ),
        "more": ("dryRun=All&reason=Why", b"", Options(dry_run=True, reason="Why")),
        "a body takes the place of the query": (
            "gracePeriodSeconds=5&dryRun=nonsense",
            b'{"gracePeriodSeconds":7}',
            Options(grace_seconds=7),
        ),
        "preconditions in the query": (
            "uid=u&resourceVersion=3",
            b"",
            Options(uid="u", resource_version="3"),
        ),
        "a body without preconditions": ("uid=u&resourceVersion=3", b"{}", Options()),
        "a body": (
            "",
            b'{"preconditions":{"uid":"u","resourceVersion":"3"},"dryRun":["All","All"]}',
            Options(uid="u", resource_version="3", dry_run=True),
        ),
    },
)
def test_delete_asks_for(text: str, body: bytes, want: Options) -> None:
    assert options.delete_options(query(text), body, "json") == want


@cases(
    "text mistake",
    {
        "no policy": (
            "propagationPolicy=",
            (
                'propagationPolicy: Unsupported value: "": '
                'supported values: "Foreground", "Background", "Orphan", "nil"'
            ),
        ),
        "two policies": (
            "propagationPolicy=Orphan&orphanDependents=true",
            (
                'propagationPolicy: Invalid value: "Orphan": '
                "orphanDependents and deletionPropagation cannot be both set"
            ),
        ),
        "two policies, and one unknown": (
            "propagationPolicy=x&orphanDependents=true",
            (
                '[propagationPolicy: Invalid value: "x": '
                "orphanDependents and deletionPropagation cannot be both set, "
                'propagationPolicy: Unsupported value: "x": '
                'supported values: "Foreground", "Background", "Orphan", "nil"]'
            ),
        ),
        "no dry run": ("dryRun=", 'dryRun: Unsupported value: [""]: supported values: "All"'),
        "a reason that is a story": (
            f"reason={'x' * 1025}",
            "reason: Too long: may not be more than 1024 bytes",
        ),
    },
)
def test_delete_is_refused_for(text: str, mistake: str) -> None:
    with refusal(422, invalid("DeleteOptions", mistake)):
        options.delete_options(query(text), b"", "json")


# -- evictions (behaviour C6.1) ---------------------------------------------


@pytest.mark.parametrize(
    ("body", "dry_run", "want"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"dryRun": ["All"]}, False, True),
        ({"dryRun": ["All"]}, True, True),
        ({"dryRun": []}, True, True),
    ],
)
def test_eviction_is_dry_by_either_word(body: Any, dry_run: bool, want: bool) -> None:
    assert options.eviction_options("p", body, dry_run=dry_run).dry_run is want


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
