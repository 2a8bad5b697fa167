# SPDX-License-Identifier: Apache-2.0
"""`refloat version`"""

import click

import refloat


@click.command()
def command() -> None:
    """Print the version of Refloat and of the Kubernetes API that it follows."""
    from refloat.api import schema  # noqa: PLC0415 - not before it is needed

    click.echo(f"refloat {refloat.__version__} (Kubernetes API {schema.kubernetes_version()})")
