"""Pages in Markdown: their titles, links and anchors."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

#: A block of code, code, or a link.
PATTERN: Final = re.compile(
    r"^ *(?P<fence>`{3,}).*?^ *(?P=fence)`*$|(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)"
    r"|(?P<text>!?\[(?:[^\[\]]|\[[^\]]*\])*\])\((?P<target>[^)\s]+)\)",
    re.MULTILINE | re.DOTALL,
)
_HEADING: Final = re.compile(r"^ {0,3}#{1,6} +(.+?) *#*$", re.MULTILINE)


def title(text: str) -> str:
    """Return the title of a page."""
    return text.partition("\n")[0].lstrip("# ")


def links(text: str) -> Iterator[str]:
    """Yield the targets of links and images, also of an image that is the text of a link."""
    for match in PATTERN.finditer(text):
        if match["target"]:
            yield from links(match["text"][1:-1])
            yield match["target"]


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    found: dict[str, int] = defaultdict(int)
    result = set()
    plain = PATTERN.sub(lambda match: "" if match["fence"] else match[0], text)
    for heading in _HEADING.findall(plain):
        words = PATTERN.sub(lambda match: match["text"] or match[0], heading)
        slug = re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")
        result.add(f"{slug}-{found[slug]}" if found[slug] else slug)
        found[slug] += 1
    return result
