# SPDX-License-Identifier: Apache-2.0
"""Random reads: gets, lists and their pages, and addresses that lead nowhere."""

from refloat.api import kinds
from tests.differential.answers import ApiCall, CallPair
from tests.differential.api_case import ApiCase, Object, collection

SELECTORS = (
    *("labelSelector=app=x", "labelSelector=a", "labelSelector=!a", "limit=1", "limit=2"),
    *("labelSelector=app+in+(x,y),a!=b", "labelSelector=app+in+(", "labelSelector=-=x"),
    *("fieldSelector=metadata.name=a", "fieldSelector=metadata.name!=a", "resourceVersion=0"),
    *("fieldSelector=status.phase=Running", "fieldSelector=status.phase!=Running"),
    *("fieldSelector=spec.nodeName=n1", "fieldSelector=type=Opaque", "fieldSelector=reason=R"),
    *("fieldSelector=involvedObject.name=a", "fieldSelector=status.successful=0"),
    *("fieldSelector=spec.unschedulable=true", "fieldSelector=metadata.namespace=x"),
    *("fieldSelector=spec.restartPolicy=Always", "fieldSelector=spec.clusterIP=None"),
    *("fieldSelector=spec.type=ExternalName", "fieldSelector=status.podIP="),
    *("fieldSelector=spec.hostNetwork=false", "fieldSelector=source=x"),
    *("fieldSelector=reportingComponent=x", "fieldSelector=status.nominatedNodeName="),
    *("fieldSelector=metadata.name", "fieldSelector=metadata.name=a,x=y", "fieldSelector==x"),
    *("fieldSelector=regarding.name=a", "fieldSelector=spec.schedulerName=x"),
    *("fieldSelector=involvedObject.uid!=x,involvedObject.kind=Pod", "labelSelector=a=b=c"),
    *(
        "labelSelector=a+notin+(b),app",
        "labelSelector=a>1",
        "labelSelector=a>x",
        "labelSelector=a==",
    ),
)

# Options of lists; most of them wrong alone, or wrong together with another.
_MORE = (
    *("limit=0", "limit=-1", "limit=x", "limit=1", "limit=500", "pretty=true", "timeoutSeconds=5"),
    *("timeoutSeconds=x", "watch=0", "watch=false", "continue=x", "continue=", "x=y"),
    *("resourceVersion=x", "resourceVersion=-1", "resourceVersion=0", "resourceVersion="),
    *("resourceVersionMatch=Exact", "resourceVersionMatch=NotOlderThan", "resourceVersionMatch=x"),
    *("sendInitialEvents=true", "sendInitialEvents=x", "allowWatchBookmarks=true"),
    *("includeObject=Object", "includeObject=None", "includeObject=Metadata", "includeObject=x"),
    *("resourceVersion=0&resourceVersionMatch=Exact", "labelSelector=app=x&labelSelector=a"),
    "resourceVersion=0&resourceVersionMatch=NotOlderThan",
)

# Watches that are refused at once.
_REFUSED = (
    *("resourceVersion=x", "sendInitialEvents=true", "resourceVersionMatch=NotOlderThan"),
    *("labelSelector=a+in+(", "fieldSelector=x=y", "timeoutSeconds=x"),
    "sendInitialEvents=true&resourceVersionMatch=Exact",
)


def get(case: ApiCase) -> ApiCall:
    query = ""
    if case.random.random() < 0.1:
        query = "?" + case.random.choice(_MORE)
    return ApiCall("GET", f"{case.collection}/{case.name()}{query}", accept=case.form())


def get_status(case: ApiCase) -> ApiCall:
    return ApiCall("GET", f"{case.collection}/{case.name()}/status", accept=case.form())


def listed(case: ApiCase) -> ApiCall:
    query = [case.random.choice(SELECTORS)]
    if case.random.random() < 0.4:
        query.append(case.random.choice(_MORE))
    return ApiCall("GET", f"{case.collection}?{only(case, query)}", accept=case.form())


def only(case: ApiCase, query: list[str]) -> str:
    """A query that is about the objects of the case, outside of namespaces too."""
    if not case.resource.namespaced:
        others = [each for each in query if not each.startswith("fieldSelector")]
        query = [f"fieldSelector=metadata.name={case.name()}", *others]
    return "&".join(query)


def page(case: ApiCase) -> CallPair | None:
    """The second page of a list, or the list as it was at the first page."""
    if not case.resource.namespaced:
        return None
    path = f"{case.collection}?limit=1"
    tokens = [
        (answer.found or {}).get("metadata", {}) for answer in case.pair.both(ApiCall("GET", path))
    ]
    if case.random.random() < 0.5 and all(each.get("continue") for each in tokens):
        more = case.random.choice(("", "&labelSelector=app=x", "&resourceVersion=0"))
        ends = [f"{path}&continue={each['continue']}{more}" for each in tokens]
    else:
        match = case.random.choice(("Exact", "Exact", "NotOlderThan"))
        limit = case.random.choice(("", "&limit=1"))
        ends = [
            f"{case.collection}?resourceVersion={each.get('resourceVersion', '')}"
            f"&resourceVersionMatch={match}{limit}"
            for each in tokens
        ]
    accept = case.form()
    return CallPair(*(ApiCall("GET", each, accept=accept) for each in ends))


def refused_watch(case: ApiCase) -> ApiCall:
    query = case.random.choice(_REFUSED)
    return ApiCall("GET", f"{case.collection}?watch=1&{query}", accept=case.form())


_NOWHERE = (
    *("/{}/x", "/{}/status", "/{}/scale", "/{}/eviction", "/{}/binding", "/{}/finalize"),
    *("/{}/status/x", "/", "/{}/", "/A_b", "/{}/approval"),
)


def nowhere(case: ApiCase) -> ApiCall:
    """A method at an address that does not support the method, or at no address."""
    random = case.random
    place = random.choice(_NOWHERE).format(case.name())
    method = random.choice(("GET", "POST", "PUT", "PATCH", "DELETE"))
    if method in ("DELETE", "GET") and place == "/":
        method = "PUT"  # rather than all that is there, of others too
    body: Object | None = None if method in ("GET", "DELETE") else {}
    media = "application/merge-patch+json" if method == "PATCH" else "application/json"
    return ApiCall(method, case.collection + place, body, media)


def event_elsewhere(case: ApiCase) -> ApiCall:
    """An event, by the address of the other group."""
    others = [each for each in kinds.RESOURCES if each.plural == "events"]
    other = next(each for each in others if each is not case.resource)
    path = collection(other, case.namespace)
    if case.random.random() < 0.5:
        return ApiCall("GET", f"{path}/{case.name()}", accept=case.form())
    return ApiCall("GET", f"{path}?{case.random.choice(SELECTORS)}", accept=case.form())
