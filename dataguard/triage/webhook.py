"""How does an alert reach a URL without training ever waiting for it?

A `Webhook` puts each alert into a bounded queue; a daemon thread of its own sends them one by one as ``POST`` with a
JSON body. What does not fit is dropped, what is refused or not answered in time has failed; both are counted, the last
reason stands in `failure`, and nothing is tried twice (the next alert is the next try). Messages name the host alone:
the rest of such a URL is mostly a secret.
"""

from __future__ import annotations

import http.client
import os
import queue
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import msgspec

from dataguard.errors import UsageError
from dataguard.version import __version__

__all__ = ["Webhook"]

MOST_WAITING = 64
"""Alerts that may wait for a slow server."""


class Webhook:
    """Sends each alert to a URL, in the background.

    Parameters
    ----------
    url
        ``http://`` or ``https://``.
    timeout_seconds
        How long the server may be silent.

    Raises
    ------
    UsageError
        The URL is of another kind, or the timeout is no number above 0.

    Examples
    --------
    >>> Webhook("ftp://alerts.example/hook")
    Traceback (most recent call last):
        ...
    dataguard.errors.UsageError: a webhook cannot be of kind 'ftp'
      allowed: a URL of http or https, with a host
    """

    def __init__(self, url: str, *, timeout_seconds: float = 5.0) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(
                f"a webhook cannot be of kind {parts.scheme!r}", allowed="a URL of http or https, with a host"
            )
        if not 0 < timeout_seconds < float("inf"):
            raise UsageError(f"timeout_seconds {timeout_seconds!r} cannot be", allowed="a number above 0")
        self._url = url
        self._host = parts.hostname
        self._timeout_seconds = timeout_seconds
        self._waiting: queue.Queue[bytes] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._num_taken = 0
        self.num_sent = 0
        """Alerts that the server took (a status of 200 to 299)."""
        self.num_failed = 0
        """Alerts that it refused, or did not answer in time."""
        self.num_dropped = 0
        """Alerts that were never tried: too many waited."""
        self.failure: str | None = None
        """Why the last one that failed did."""

    def __call__(self, alert: msgspec.Struct) -> None:
        """Send an alert some time soon; never waits."""
        if os.getpid() != self._pid:  # the thread stayed behind in the parent of a fork
            self._pid, self._thread = os.getpid(), None
            self._waiting, self._num_taken = queue.Queue(MOST_WAITING), 0
        try:
            self._waiting.put_nowait(msgspec.json.encode(alert))
        except queue.Full:
            self.num_dropped += 1
            self.failure = f"{MOST_WAITING} alerts wait for an answer already; this one is dropped"
            return
        self._num_taken += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="dataguard webhook", daemon=True)
            self._thread.start()

    def close(self, *, wait_seconds: float | None = None) -> None:
        """Wait for what is on its way, by default as long as one answer may take."""
        deadline = time.monotonic() + (self._timeout_seconds if wait_seconds is None else wait_seconds)
        while self.num_sent + self.num_failed < self._num_taken and time.monotonic() < deadline:
            time.sleep(0.01)

    def _work(self) -> None:
        while True:
            body = self._waiting.get()
            failure = self._post(body)
            if failure is None:
                self.num_sent += 1
            else:
                self.failure = failure
                self.num_failed += 1

    def _post(self, body: bytes) -> str | None:
        """Why it failed; None where it did not."""
        request = urllib.request.Request(  # noqa: S310 - http and https alone, checked when made
            self._url,
            data=body,
            headers={"Content-Type": "application/json", "User-Agent": f"dataguard/{__version__}"},
            method="POST",
        )
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_seconds) as answer:  # noqa: S310
                answer.read(1 << 16)
        except urllib.error.HTTPError as error:
            error.close()
            return f"the server answered {error.code}"
        except urllib.error.URLError as error:
            return f"{type(error.reason).__name__}: {error.reason}"
        except (OSError, http.client.HTTPException, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        return None

    def __repr__(self) -> str:
        return f"Webhook({self._host})"
