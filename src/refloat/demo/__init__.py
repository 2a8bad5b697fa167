# SPDX-License-Identifier: Apache-2.0
"""The stories that `refloat demo` plays, each on a cluster of its own.

A story is a client: it knows the cluster by its kubeconfig and its API alone,
so that what it shows is what anybody can do. It prints nothing: its lines go
to whoever plays it (see `story.play`), which for users is `refloat.cli.demo`.
"""
