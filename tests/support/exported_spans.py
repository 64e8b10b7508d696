"""Exported spans, by name and as a tree."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class ExportedSpans:
    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """Return the spans that have ended, in order of their end."""
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [each for each in self.spans if each.name == name]

    def one(self, name: str) -> ReadableSpan:
        found = self.named(name)
        assert len(found) == 1, (
            f"{len(found)} of {name!r}, and: {[each.name for each in self.spans]}"
        )
        return found[0]

    def tree(self, of: str | None = None) -> str:
        """Return the tree of all spans or of one span as indented text, with siblings sorted by name."""
        above = self.roots() if of is None else [self.one(of)]
        return "\n".join(line for root in _sorted(above) for line in self._lines(root, 0))

    def roots(self) -> list[ReadableSpan]:
        ids = {id_of(each) for each in self.spans}
        return [
            each for each in self.spans if each.parent is None or each.parent.span_id not in ids
        ]

    def _lines(self, span: ReadableSpan, depth: int) -> list[str]:
        lines = ["  " * depth + span.name]
        below = [each for each in self.spans if each.parent and each.parent.span_id == id_of(span)]
        for each in _sorted(below):
            lines += self._lines(each, depth + 1)
        return lines

    def traces(self) -> set[int]:
        return {trace_of(each) for each in self.spans}


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    number: int = span.context.span_id
    return number


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    number: int = span.context.trace_id
    return number


def links_of(span: ReadableSpan) -> set[int]:
    return {link.context.span_id for link in span.links}


def attribute_of(span: ReadableSpan, name: str) -> object:
    assert span.attributes is not None
    return span.attributes.get(name)


def _sorted(spans: Sequence[ReadableSpan]) -> list[ReadableSpan]:
    return sorted(spans, key=lambda each: each.name)
