"""The trigger by which KEDA scales the workers."""

from __future__ import annotations

from typing import Any

from support.manifests import KUBERNETES, Document, find_document, read


def scaled_object(component: str) -> Document:
    documents = read(KUBERNETES / "components" / component / "scaled-object.yaml")
    return find_document(documents, "ScaledObject", "rota-worker")


def trigger(component: str) -> dict[str, Any]:
    [only] = scaled_object(component)["spec"]["triggers"]
    return dict(only)
