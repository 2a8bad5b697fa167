# SPDX-License-Identifier: Apache-2.0
"""The kubeconfig that lets kubectl and other clients reach the embedded cluster."""

import base64

import yaml


def render(*, server: str, authority: bytes, token: str) -> bytes:
    """A kubeconfig with one cluster, one user and one context."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "refloat",
                "cluster": {
                    "server": server,
                    "certificate-authority-data": base64.b64encode(authority).decode(),
                },
            }
        ],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "refloat", "context": {"cluster": "refloat", "user": "admin"}}],
        "current-context": "refloat",
    }
    text: str = yaml.safe_dump(document, sort_keys=False)
    return text.encode()
