# SPDX-License-Identifier: Apache-2.0
"""The kubeconfig that clients read."""

import base64

import yaml

from refloat.app import kubeconfig


def test_context_joins_cluster_and_user() -> None:
    text = kubeconfig.render(server="https://[::1]:6443", authority=b"PEM", token="t")
    document = yaml.safe_load(text)
    (context,) = document["contexts"]
    assert document["current-context"] == context["name"]
    (cluster,) = (
        each for each in document["clusters"] if each["name"] == context["context"]["cluster"]
    )
    (user,) = (each for each in document["users"] if each["name"] == context["context"]["user"])
    assert cluster["cluster"]["server"] == "https://[::1]:6443"
    assert base64.b64decode(cluster["cluster"]["certificate-authority-data"]) == b"PEM"
    assert user["user"] == {"token": "t"}
