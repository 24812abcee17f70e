"""Changes that a viewer who has seen a version of the page's documents is sent."""

import asyncio
import json

from numazones_operator.page.versioned_documents import VersionedDocuments
from tests.operator.page.changes import changes
from tests.waiting import PATIENCE


async def test_whoever_waits_for_a_change_wakes_when_viewers_are_notified() -> None:
    documents = VersionedDocuments()
    waiting = asyncio.create_task(documents.wait_for_change(0))
    documents.put({"a/": 1})
    await asyncio.sleep(0)
    latecomer = asyncio.create_task(documents.wait_for_change(0))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert not latecomer.done()
    documents.notify()
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(waiting, latecomer, documents.wait_for_change(0))


def test_unchanged_document_put_again_is_no_change() -> None:
    documents = VersionedDocuments()
    documents.put({"a/": 1, "b/": 2})
    seen = documents.version
    documents.put({"a/": 1, "b/": 3})
    assert changes(documents, seen) == {"b/": 3}
    assert changes(documents) == {"a/": 1, "b/": 3}


def test_removed_document_is_sent_to_viewers_that_saw_it() -> None:
    documents = VersionedDocuments()
    documents.put({"a/": 1})
    seen = documents.version
    documents.remove(["a/", "never/"])
    assert changes(documents, seen) == {"a/": None}
    documents.put({"a/": 1})
    assert changes(documents, seen) == {"a/": 1}


def test_keys_of_removed_documents_are_not_kept_for_ever() -> None:
    documents = VersionedDocuments()
    seen = documents.version
    for number in range(3000):
        documents.put({f"pod/{number}": number})
        documents.remove([f"pod/{number}"])
    assert documents.is_expired(seen)
    assert len(changes(documents)) < 1500
    assert not documents.is_expired(documents.version)


def test_many_documents_come_in_chunks() -> None:
    documents = VersionedDocuments()
    nodes = {f"node/{number}": "x" * 10_000 for number in range(100)}
    documents.put(nodes)
    chunks = [json.loads(chunk) for chunk in documents.changes_since(0)]
    assert 3 < len(chunks) < 6
    assert [key for chunk in chunks for key in chunk] == list(nodes)


def test_after_clear_nothing_is_there_and_every_viewer_begins_anew() -> None:
    documents = VersionedDocuments()
    documents.put({"a/": 1})
    seen = documents.version
    documents.clear()
    assert changes(documents) == {}
    assert documents.is_expired(seen)
    documents.put({"a/": 1})
    assert changes(documents, documents.version - 1) == {"a/": 1}
