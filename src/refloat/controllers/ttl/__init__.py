# SPDX-License-Identifier: Apache-2.0
"""Deletes Jobs whose time after their end has run out (behaviour A24).

It waits for the exact moment, looks once more at the Job as it is, and deletes
it with all that it owns. What is owned goes first and by others: the owner
garbage collector. It runs where no other such controller does, so never
on Kubernetes.
"""
