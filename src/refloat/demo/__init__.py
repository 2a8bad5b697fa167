# SPDX-License-Identifier: Apache-2.0
"""The demos of `refloat demo`, each on a temporary cluster.

A demo is a client: it uses the kubeconfig and the API alone, so that users can
repeat each step; `refloat.scenario` has its verbs and waits. A demo prints nothing:
`demo_run.run` yields its lines, and `refloat.cli.demo` prints them.
"""
