# SPDX-License-Identifier: Apache-2.0
"""Every pod that there ever was, from a watch that goes on over restarts of the server.

The watch goes straight to the server, not over a link, and continues from the last
version, so that no pod is missed, also if one lived for a moment only.
"""

import contextlib
import http.client
import itertools
import threading
import time

from tests.e2e.cluster import Api, Object
from tests.faults.processes import LOOK_SECONDS, wait

PODS = "/api/v1/namespaces/default/pods"


class Observer:
    """Follows pods in a thread."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._is_over = False
        self._version = ""
        self._marks = itertools.count(1)
        self.pods: dict[str, Object] = {}
        """By uid, each as last seen; also those that are gone."""
        self.gone: set[str] = set()
        self.deleted_while_running: dict[str, Object] = {}
        """Pods as they were when their deletion was first seen, if they had not ended."""
        self._thread = threading.Thread(target=self._follow, name="observer", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        while not self._is_over:
            with contextlib.suppress(OSError, http.client.HTTPException, AssertionError):
                self._watch()
            time.sleep(LOOK_SECONDS)

    def _watch(self) -> None:
        if not self._version:
            answer = self._api.get(PODS)
            for each in answer["items"]:
                self._see("ADDED", each)
            self._version = answer["metadata"]["resourceVersion"]
        query = {"resourceVersion": self._version, "allowWatchBookmarks": "true"}
        with self._api.watch(PODS, **query) as stream:
            while not self._is_over:
                what, obj = stream.next()
                if not what:
                    return
                assert what != "ERROR", obj
                self._version = obj["metadata"]["resourceVersion"]
                if what != "BOOKMARK":
                    self._see(what, obj)

    def _see(self, what: str, obj: Object) -> None:
        uid = obj["metadata"]["uid"]
        has_ended = obj["status"].get("phase") in ("Succeeded", "Failed")
        if "deletionTimestamp" in obj["metadata"] and not has_ended:
            self.deleted_while_running.setdefault(uid, obj)
        self.pods[uid] = obj
        if what == "DELETED":
            self.gone.add(uid)

    def catch_up(self) -> None:
        """Return when all pods until now were seen: a pod made now is the mark."""
        name = f"mark-{next(self._marks)}"
        gate = [{"name": "example.com/mark"}]
        spec = {"schedulingGates": gate, "containers": [{"name": "main", "image": "busybox"}]}
        mark = self._api.create(PODS, {"metadata": {"name": name}, "spec": spec})["metadata"]["uid"]
        wait(lambda: mark in self.pods, "the watch of pods has seen all")
        self._api.ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
        del self.pods[mark]

    def of(self, job: Object) -> dict[str, Object]:
        """The pods that a Job ever had."""
        uid = job["metadata"]["uid"]
        return {
            key: pod
            for key, pod in list(self.pods.items())
            if any(each["uid"] == uid for each in pod["metadata"].get("ownerReferences") or ())
        }

    def close(self) -> None:
        self._is_over = True
