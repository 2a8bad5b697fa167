# SPDX-License-Identifier: Apache-2.0
"""What one case is about: a kind, two names in it, and the random objects of these names."""

import copy
from dataclasses import dataclass
from random import Random
from typing import Any

from refloat.api import kinds, schema
from tests.differential import objects, values
from tests.differential.answers import ApiCall, ServerPair

Object = dict[str, Any]

NAMES = ("a", "b")
MANAGERS = ("m1", "m2", "m3")

_META = "v=v1;g=meta.k8s.io"
_FORMS = (
    *("application/json",) * 24,
    f"application/json;as=Table;{_META}",
    f"application/json;as=PartialObjectMetadata;{_META}",
    f"application/json;as=PartialObjectMetadataList;{_META}",
    *(f"application/json;as=Table;{_META}", f"application/yaml;as=PartialObjectMetadata;{_META}"),
    *(
        "application/yaml",
        "*/*",
        "text/plain",
        "text/plain,application/*",
        "application/json;q=0.5",
    ),
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
    f"application/json;as=Table;v=v2;g=meta.k8s.io,application/json;as=Foo;{_META}",
)

# Options that are wrong, or mean nothing.
_ODD_OPTIONS = (
    *("dryRun=x", "dryRun=", "dryRun=All&dryRun=All", "dryRun=All&dryRun=x", "force=true"),
    *("fieldValidation=", "fieldValidation=Strict&fieldValidation=x", "pretty=true", "x=y"),
    *("fieldManager=", f"fieldManager={'a' * 129}", "fieldManager=%07", "force=x"),
)


@dataclass(frozen=True)
class ApiCase:
    """What a case is about."""

    random: Random
    resource: kinds.Resource
    namespace: str
    pair: ServerPair
    tracked: bool  # begins with an apply: from there on both show who owns what

    @property
    def collection(self) -> str:
        return collection(self.resource, self.namespace)

    @property
    def struct(self) -> schema.Struct:
        return schema.struct(self.resource.api_version, self.resource.kind)

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(name for name in self.struct.fields if name not in ("apiVersion", "kind"))

    @property
    def has_status(self) -> bool:
        return self.resource.subresource("status") is not None

    def name(self) -> str:
        return full_name(self.resource, self.namespace, self.random.choice(NAMES))

    def form(self) -> str:
        return self.random.choice(_FORMS)

    def options(self, *more: str) -> str:
        """The query of a write."""
        query = [each for each in more if each]
        if self.random.random() < 0.2:
            wish = self.random.choice(("Strict", "Strict", "Ignore", "Warn", "x"))
            query.append(f"fieldValidation={wish}")
        if self.random.random() < 0.12:
            query.append("dryRun=All")
        if self.random.random() < 0.03:
            query.append(self.random.choice(_ODD_OPTIONS))
        if self.tracked:
            query.append(f"fieldManager={self.random.choice(MANAGERS)}")
        return "?" + "&".join(query) if query else ""

    def identified(self, name: str, rest: Object) -> Object:
        """An object with the kind and name."""
        metadata = {**rest.get("metadata", {}), "name": name}
        kind = {"apiVersion": self.resource.api_version, "kind": self.resource.kind}
        return {**kind, **rest, "metadata": metadata}

    def fresh(self, name: str) -> Object:
        """A whole object; valid, or with some values exchanged."""
        bases = objects.bases(self.resource.group, self.resource.plural, self.namespace)
        obj: Object = self.identified(name, copy.deepcopy(self.random.choice(bases)))
        while self.random.random() < 0.35:
            change = values.part(self.random, self.struct, self.parts)
            obj = values.merged(self.random, obj, change)
        return obj

    def change(self, *, status: bool) -> Object:
        """A part of an object; for a status mostly a part of the status."""
        only = status and self.random.random() < 0.8
        parts = ("status",) if only else self.parts
        change = values.part(self.random, self.struct, parts)
        if self.random.random() < 0.3:
            more = values.part(self.random, self.struct, parts)
            change = values.merged(self.random, change, more)
        return change

    def current(self, name: str) -> tuple[Object, Object] | None:
        """The object as each server has it, if both have the object."""
        left, right = self.pair.both(ApiCall("GET", f"{self.collection}/{name}"))
        if left.found is None or right.found is None:
            return None
        return left.found, right.found


def collection(resource: kinds.Resource, namespace: str) -> str:
    root = f"/apis/{resource.group}" if resource.group else "/api"
    within = f"/namespaces/{namespace}" if resource.namespaced else ""
    return f"{root}/{resource.version}{within}/{resource.plural}"


def full_name(resource: kinds.Resource, namespace: str, name: str) -> str:
    """Names of what belongs to no namespace carry the run's."""
    return name if resource.namespaced else f"{namespace}-{name}"
