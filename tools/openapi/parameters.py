# SPDX-License-Identifier: Apache-2.0
"""The parameters of requests: in the query, and in the address itself.

Listed is what Refloat reads. Two that Kubernetes lists are not: the selector
of shards, and the way to delete what cannot be read.
"""

from collections.abc import Iterable
from typing import Any

PRETTY = "pretty"

LIST = (
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
)

WRITE = ("dryRun", "fieldManager", "fieldValidation")

PATCH = (*WRITE, "force")

DELETE = ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy", "reason")

_ONLY_OF_READS = ("allowWatchBookmarks", "watch")

DELETE_COLLECTION = (*(each for each in LIST if each not in _ONLY_OF_READS), *DELETE)

LOG = (
    "container",
    "follow",
    "insecureSkipTLSVerifyBackend",
    "limitBytes",
    "previous",
    "sinceSeconds",
    "stream",
    "tailLines",
    "timestamps",
)

_STREAMS = ("container", "stderr", "stdin", "stdout", "tty")

CONNECT = {
    "attach": _STREAMS,
    "exec": ("command", *_STREAMS),
    "portforward": ("ports",),
}
"""Subresources that turn the connection into a stream."""

_IN_ADDRESS = {
    "name": "The name of the {kind}.",
    "namespace": "The namespace to look in.",
}

_BOOLEANS = frozenset(
    {
        "allowWatchBookmarks",
        "follow",
        "force",
        "insecureSkipTLSVerifyBackend",
        "orphanDependents",
        "previous",
        "sendInitialEvents",
        "stderr",
        "stdin",
        "stdout",
        "timestamps",
        "tty",
        "watch",
    }
)

_INTEGERS = frozenset(
    {
        "gracePeriodSeconds",
        "limit",
        "limitBytes",
        "ports",
        "sinceSeconds",
        "tailLines",
        "timeoutSeconds",
    }
)

_TEXTS = {
    "allowWatchBookmarks": "For a watch: now and then send an event of type BOOKMARK, which"
    " carries a resource version to resume from and no change.",
    "command": "The command and its arguments, one parameter each; no shell reads them.",
    "container": "The container; may be left out when the pod has only one.",
    "continue": "For a list: the token of the previous page, to get the next one.",
    "dryRun": "All: check everything and answer as usual, but keep nothing.",
    "fieldManager": "Who writes, as metadata.managedFields will name it; at most 128 printable"
    " characters. Required for an apply.",
    "fieldSelector": "Only objects whose fields match, such as status.phase=Running.",
    "fieldValidation": "What happens to unknown and repeated fields: Ignore drops them, Warn"
    " (the default) drops them and warns, Strict refuses the request.",
    "follow": "Stay and send new lines as they are written.",
    "force": "For an apply: take over fields that others own. Must not be set for other patches.",
    "gracePeriodSeconds": "How long the object has to end by itself; 0 deletes it at once."
    " Default: what the object or its kind says.",
    "insecureSkipTLSVerifyBackend": "Do not check the certificate of the node that has the log.",
    "labelSelector": "Only objects whose labels match, such as app=a,tier!=b.",
    "limit": "For a list: at most so many objects; the answer then has a token for the rest.",
    "limitBytes": "At most so many bytes of the log.",
    "orphanDependents": "Deprecated, use propagationPolicy. Whether dependents are left behind.",
    "ports": "The ports to forward.",
    PRETTY: "true: indent the answer for a person.",
    "previous": "The log of the container's previous run.",
    "propagationPolicy": "What becomes of dependents: Orphan leaves them, Background deletes them"
    " after the object, Foreground before it.",
    "reason": "Why the object is deleted; a pod shows it in status.reason. An extension of"
    " Refloat.",
    "resourceVersion": "For a list: how fresh the answer must be. For a watch: the version to"
    " start after.",
    "resourceVersionMatch": "How resourceVersion is meant: Exact or NotOlderThan.",
    "sendInitialEvents": "For a watch: first send what there is as ADDED events, then a bookmark"
    " that says that this was all. Needs resourceVersionMatch=NotOlderThan.",
    "sinceSeconds": "Only lines that are not older than so many seconds.",
    "stderr": "Connect the standard error.",
    "stdin": "Connect the standard input.",
    "stdout": "Connect the standard output.",
    "stream": "Which output to send: All, Stdout or Stderr.",
    "tailLines": "Only so many lines from the end.",
    "timeoutSeconds": "End the request after so many seconds, also when there is more to come.",
    "timestamps": "Begin each line with the time when it was written.",
    "tty": "Give the process a terminal.",
    "watch": "Do not list, but send each change as it happens.",
}


def made(names: Iterable[str], kind: str) -> list[dict[str, Any]]:
    """The parameters of these names, in order."""
    return [_parameter(name, kind) for name in sorted(names)]


def _parameter(name: str, kind: str) -> dict[str, Any]:
    if name in _IN_ADDRESS:
        place: dict[str, Any] = {"in": "path", "description": _IN_ADDRESS[name].format(kind=kind)}
        place["required"] = True
    else:
        place = {"in": "query", "description": _TEXTS[name]}
    return {"name": name, **place, "schema": {"type": _type(name), "uniqueItems": True}}


def _type(name: str) -> str:
    if name in _BOOLEANS:
        return "boolean"
    return "integer" if name in _INTEGERS else "string"
