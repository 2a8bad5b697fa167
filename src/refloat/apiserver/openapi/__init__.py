# SPDX-License-Identifier: Apache-2.0
"""What the API is, said to programs: OpenAPI v3, as Kubernetes serves it.

`kubectl explain`, and `kubectl apply` and `kubectl create` before they send
anything, read it. `schemas` are the types, `paths` the addresses, `documents`
puts both together. Nothing is written by hand per kind, and nothing here
takes part in answering any other request.
"""

from refloat.apiserver.openapi.documents import digest, document, index

__all__ = ["digest", "document", "index"]
