# SPDX-License-Identifier: Apache-2.0
"""Completion in bash of words with `=`, such as feature gates.

Bash splits a word at `=` before it asks: `Name=tr` arrives as `Name`, `=`, `tr`, and the answer
replaces `tr` alone. click takes the parts for words of their own.
"""

from collections.abc import Iterable

from click import shell_completion
from click.shell_completion import CompletionItem


class BashComplete(shell_completion.BashComplete):
    """Joins the parts of a word, and offers what stands after the last `=`."""

    _before = ""
    """The part of the current word that bash keeps."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        *words, last = joined([*args, incomplete])
        value = last.partition("=")[2] if last.startswith("-") else last
        self._before = value[: value.rfind("=") + 1]
        return words, last

    def format_completion(self, item: CompletionItem) -> str:
        text = str(item.value).removeprefix(self._before)
        return f"{item.type},{text}"


def joined(words: Iterable[str]) -> list[str]:
    """`A`, `=`, `b` becomes `A=b`."""
    whole: list[str] = []
    after_sign = False
    for word in words:
        if whole and (after_sign or word == "="):
            whole[-1] += word
        else:
            whole.append(word)
        after_sign = word == "="
    return whole


def register() -> None:
    shell_completion.add_completion_class(BashComplete)
