# SPDX-License-Identifier: Apache-2.0
"""The table of controllers has each controller that a user can name."""

from refloat.app import controller_names, controller_table


def test_each_controller_has_a_build() -> None:
    assert sorted(controller_table.CONTROLLERS) == sorted(controller_names.KNOWN)


def test_each_controller_has_a_build_of_its_own() -> None:
    assert len(set(controller_table.CONTROLLERS.values())) == len(controller_names.KNOWN)
