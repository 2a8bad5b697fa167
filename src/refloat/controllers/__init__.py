# SPDX-License-Identifier: Apache-2.0
"""The controllers: each observes, asks `refloat.policy`, and applies what it is told.

A package for each, and none knows another: they meet in the objects of the
API. What all stand on (caches, queues, leadership) is in `refloat.runtime`,
and who runs which is decided in `refloat.app`.
"""
