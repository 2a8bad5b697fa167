# SPDX-License-Identifier: Apache-2.0
"""The pod failures of KEP-3329, with real processes.

Each case is a demo. It makes a Job's pod fail as the KEP describes, and compares
the pod and the Job with the KEP. A case lists the differences, each with a reason.
docs/failures.md is generated from the same cases.
"""
