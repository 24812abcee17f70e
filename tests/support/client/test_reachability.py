"""That a server is lost, and found again, is said once each, whichever requests notice it."""

import pytest

from numazones_client import Unreachable
from numazones_client.errors import Request
from numazones_client.reachability import Reachability

LOST = Unreachable(Request("watch", "pods"), "no answer", sent=True)


def test_earlier_requests_do_not_mark_a_lost_server_reachable(caplog: pytest.LogCaptureFixture) -> None:
    now = 10.0
    server = Reachability(clock=lambda: now)
    server.lost(LOST)
    now = 11.0
    server.found(9.0)  # on a connection that was cut last
    server.lost(LOST)
    assert len(caplog.records) == 1
    server.found(11.0)
    server.found(11.0)
    assert [one.getMessage().partition(":")[0] for one in caplog.records] == [
        "the API server does not respond; requests are retried until it does",
        "the API server responds again, after 1.0 s",
    ]
