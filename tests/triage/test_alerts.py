"""Alerts: one key once in a while, three ways to be told, and nothing that fails or hangs stops or delays who sends."""

from __future__ import annotations

import io
import json
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataguard.core.spikes import EventClass
from dataguard.errors import UsageError
from dataguard.triage import alerts as alerts_module
from dataguard.triage.alerts import Alert, Alerts, JsonLines
from dataguard.triage.webhook import MOST_WAITING, Webhook

SECONDS = 20.0


def alert(step: int = 7, key: str = "hard_fault/loss", **more: Any) -> Alert:
    return Alert(key=key, run="runs/a", attempt=1, step=step, text="loss is nan", **more)


class Server:
    """A real HTTP server on loopback: keeps bodies, answers with `status`, or hangs until it is told to go on."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.kinds: list[str | None] = []
        self.status = 200
        self.go_on = threading.Event()
        self.go_on.set()
        self.came = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.came.set()
                outer.go_on.wait(SECONDS)
                outer.bodies.append(json.loads(body))
                outer.kinds.append(self.headers["Content-Type"])
                try:
                    self.send_response(outer.status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                except OSError:
                    pass  # whoever asked did not wait

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/hook/secret"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.go_on.set()
    made.http.shutdown()
    made.http.server_close()
    thread.join(SECONDS)


@contextmanager
def patience(webhook: Webhook, total: int) -> Iterator[None]:
    yield
    deadline = time.monotonic() + SECONDS
    while webhook.num_sent + webhook.num_failed + webhook.num_dropped < total:
        assert time.monotonic() < deadline, "the webhook's thread did not come to an end"
        time.sleep(0.005)


# -- keys and cooldown


def test_a_key_is_sent_once_in_a_cooldown_and_the_count_goes_with_the_next() -> None:
    sent: list[Alert] = []
    alerts = Alerts([sent.append], cooldown_steps=100)
    said = [alerts.send(alert(step)) for step in (10, 11, 60, 109, 110, 111)]
    assert said == [True, False, False, False, True, False]
    assert [(each.step, each.num_held_back) for each in sent] == [(10, 0), (110, 3)]


def test_other_keys_are_not_held_back() -> None:
    sent: list[Alert] = []
    alerts = Alerts([sent.append])
    for key in ("a", "b", "a", "b", "c"):
        alerts.send(alert(3, key))
    assert [each.key for each in sent] == ["a", "b", "c"]


def test_a_trainer_that_went_back_is_told_anew() -> None:
    sent: list[Alert] = []
    alerts = Alerts([sent.append], cooldown_steps=100)
    for step in (500, 420, 430):
        alerts.send(alert(step))
    assert [each.step for each in sent] == [500, 420]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=40), st.integers(0, 40), st.integers(0, 25)
)
def test_a_state_continues_exactly(given: list[tuple[str, int]], cut: int, cooldown: int) -> None:
    steps, at = [], 0
    for key, further in given:
        at += further
        steps.append((at, key))
    whole: list[Alert] = []
    unbroken = Alerts([whole.append], cooldown_steps=cooldown)
    for step, key in steps:
        unbroken.send(alert(step, key))
    parts: list[Alert] = []
    first = Alerts([parts.append], cooldown_steps=cooldown)
    for step, key in steps[:cut]:
        first.send(alert(step, key))
    second = Alerts([parts.append], cooldown_steps=cooldown)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for step, key in steps[cut:]:
        second.send(alert(step, key))
    assert parts == whole
    # What is counted is counted once: each alert was sent, or goes with a later one, or still waits.
    for key in "abc":
        own = [each for each in whole if each.key == key]
        waiting = unbroken.state_dict()["sent"].get(key, [0, 0])[1]
        assert len(own) + sum(each.num_held_back for each in own) + waiting == sum(each == key for _, each in steps)


def test_a_state_is_bounded() -> None:
    alerts = Alerts(cooldown_steps=10_000)
    for number in range(2 * alerts_module.MOST_KEYS):
        alerts.send(alert(number, f"key {number}"))
    kept = alerts.state_dict()["sent"]
    assert len(kept) == alerts_module.MOST_KEYS
    assert f"key {2 * alerts_module.MOST_KEYS - 1}" in kept


@pytest.mark.parametrize("state", [{}, {"sent": 3}, {"sent": {"a": 3}}, {"sent": {"a": ["x", 0]}}])
def test_what_is_no_state_is_refused(state: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="no state of Alerts"):
        Alerts().load_state_dict(state)


@pytest.mark.parametrize("sinks", ["http://x", [3], [object()], print])
def test_who_cannot_be_told_is_refused(sinks: Any) -> None:
    with pytest.raises(UsageError):
        Alerts(sinks)


# -- who is told


def test_lines_of_json_go_to_a_file_and_to_a_stream(tmp_path: Path) -> None:
    stream = io.StringIO()
    alerts = Alerts([str(tmp_path / "alerts.jsonl"), JsonLines(stream)], cooldown_steps=0)
    alerts.send(alert(3, event_class=EventClass.HARD_FAULT, start=3, rank=5))
    alerts.send(alert(4, size_nats=float("inf")))
    lines = (tmp_path / "alerts.jsonl").read_text().splitlines()
    assert lines == stream.getvalue().splitlines()
    assert json.loads(lines[0]) == {
        "format": "dataguard-alert",
        "key": "hard_fault/loss",
        "run": "runs/a",
        "attempt": 1,
        "step": 3,
        "text": "loss is nan",
        "event_class": "hard_fault",
        "start": 3,
        "rank": 5,
    }
    assert json.loads(lines[1])["size_nats"] is None, "infinity is no JSON"


def test_a_sink_that_raises_is_told_once_and_stops_neither_training_nor_the_others(tmp_path: Path) -> None:
    def broken(_: Alert) -> None:
        raise ValueError("no pager")

    sent: list[Alert] = []
    alerts = Alerts([broken, tmp_path / "no" / "such" / "folder", sent.append], cooldown_steps=0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step in range(5):
            alerts.send(alert(step))
    assert len(sent) == 5
    assert alerts.num_failed == 10
    assert len(told) == len(alerts.notes) == 2
    assert "ValueError: no pager" in alerts.notes[0]
    assert "FileNotFoundError" in alerts.notes[1]


def test_a_webhook_posts_json(server: Server) -> None:
    alerts = Alerts([server.url], cooldown_steps=0)
    for step in range(3):
        alerts.send(alert(step))
    alerts.close()
    assert [body["step"] for body in server.bodies] == [0, 1, 2]
    assert server.kinds == ["application/json"] * 3
    assert alerts.notes == ()


@pytest.mark.parametrize("status", [500, 404])
def test_a_server_that_refuses_is_counted_and_told_once(server: Server, status: int) -> None:
    server.status = status
    webhook = Webhook(server.url)
    alerts = Alerts([webhook], cooldown_steps=0)
    with patience(webhook, 3):
        for step in range(3):
            webhook(alert(step))
    with pytest.warns(RuntimeWarning, match=f"the server answered {status}"):
        alerts.look()
    alerts.look()  # said once: a second warning would be an error here
    assert (webhook.num_sent, webhook.num_failed) == (0, 3)
    assert "secret" not in alerts.notes[0]
    server.status = 200  # what failed is not the end of it
    with patience(webhook, 4):
        webhook(alert(9))
    assert webhook.num_sent == 1


def test_a_server_that_hangs_delays_nobody_and_what_waits_is_bounded(server: Server) -> None:
    server.go_on.clear()
    webhook = Webhook(server.url, timeout_seconds=SECONDS)
    webhook(alert(0))
    assert server.came.wait(SECONDS)  # the thread is with the server now, and stays there
    for step in range(1, MOST_WAITING + 11):
        webhook(alert(step))
    assert not server.bodies, "all were taken while the server hung"
    assert webhook.num_dropped == 10
    webhook.close(wait_seconds=0.05)  # nor does the end wait
    assert not server.bodies
    server.go_on.set()
    with patience(webhook, MOST_WAITING + 11):
        pass
    assert [body["step"] for body in server.bodies] == list(range(MOST_WAITING + 1))


def test_an_answer_that_does_not_come_in_time_has_failed(server: Server) -> None:
    server.go_on.clear()
    webhook = Webhook(server.url, timeout_seconds=0.05)
    with patience(webhook, 1):
        webhook(alert(0))
    assert (webhook.num_failed, webhook.num_sent) == (1, 0)
    assert webhook.failure is not None
    assert "timed out" in webhook.failure.lower()


def test_nobody_listens() -> None:
    taken = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    port = taken.server_port
    taken.server_close()
    webhook = Webhook(f"http://127.0.0.1:{port}/", timeout_seconds=2)
    with patience(webhook, 1):
        webhook(alert(0))
    assert webhook.num_failed == 1
    assert webhook.failure is not None
    assert "refused" in webhook.failure.lower()


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://a/b", "http://", "alerts", ""])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(UsageError, match="webhook"):
        Webhook(url)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_timeouts_that_cannot_be(seconds: float) -> None:
    with pytest.raises(UsageError, match="timeout"):
        Webhook("http://a", timeout_seconds=seconds)
