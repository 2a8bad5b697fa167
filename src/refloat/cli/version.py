# SPDX-License-Identifier: Apache-2.0
"""`refloat version` and `refloat --version`"""

import click

import refloat


@click.command()
def command() -> None:
    """Print the version of Refloat and of the Kubernetes API that it follows."""
    click.echo(text())


def text() -> str:
    from refloat.api import schema  # noqa: PLC0415 - loaded only when needed

    return f"refloat {refloat.__version__} (Kubernetes API {schema.kubernetes_version()})"
