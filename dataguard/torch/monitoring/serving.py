"""How does a rank answer those who scrape it, and at which port?

Each rank that logs answers for itself, at ``prometheus_port`` plus its place among the processes of its machine
(``LOCAL_RANK``, as launchers set it; else its data-parallel rank): what people list as targets. Port 0 takes any that
is free. It listens from the moment the monitor is made, so that a port that is taken is told before training begins,
and on this machine alone unless told otherwise: whoever reaches it may read it, nobody is asked who he is.

The registry is its own, so nothing of the trainer's collides. A fork of the process lets go of the port.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dataguard.errors import EnvironmentFailed, UsageError
from dataguard.torch.monitoring.scraped import Family

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["LOOPBACK", "Endpoint", "port_of"]

LOOPBACK = "127.0.0.1"
_LOCAL = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
_MOST_PORT = 65_535

_listening: weakref.WeakSet[Endpoint] = weakref.WeakSet()


def _let_go_in_child() -> None:
    """A forked child holds the socket as well, and nobody in it answers: it lets go."""
    for endpoint in list(_listening):
        endpoint._abandon()


os.register_at_fork(after_in_child=_let_go_in_child)


def port_of(base: int, rank: int, *, environ: Mapping[str, str] | None = None) -> int:
    """The port of this process.

    Parameters
    ----------
    base
        As the monitor was told.
    rank
        The data-parallel rank, which counts where no launcher says the place on this machine.
    environ
        Where launchers speak. Default: the process's environment.

    Raises
    ------
    UsageError
        There is no such port.

    >>> port_of(9400, 11, environ={"LOCAL_RANK": "3"}), port_of(9400, 11, environ={}), port_of(0, 11, environ={})
    (9403, 9411, 0)
    """
    if isinstance(base, bool) or not isinstance(base, int) or not 0 <= base <= _MOST_PORT:
        raise UsageError(f"prometheus_port {base!r} cannot be", allowed=f"0 (any that is free) to {_MOST_PORT}")
    if not base:
        return 0
    said = os.environ if environ is None else environ  # noqa: TID251 - the launcher's
    local = next((int(said[name]) for name in _LOCAL if said.get(name, "").isdecimal()), rank)
    if base + local > _MOST_PORT:
        raise UsageError(
            f"prometheus_port {base} plus {local}, the place of this process on its machine, is no port",
            allowed=f"at most {_MOST_PORT}",
            todo="choose a lower port",
        )
    return base + local


class Endpoint:
    """Answers scrapes until it is closed.

    Parameters
    ----------
    host, port
        Where it listens.
    families
        Gives all metrics; called in threads of the server.

    Raises
    ------
    UsageError
        The package prometheus-client is not installed.
    EnvironmentFailed
        The system does not let it listen there: the port is taken, or the address is not one of this machine.
    """

    def __init__(self, host: str, port: int, families: Callable[[], Iterable[Family]]) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError as error:
            raise UsageError(
                "prometheus_port needs a package that is not installed: prometheus-client",
                todo="pip install 'dataguard[prometheus]'",
            ) from error
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collector(families))
        try:
            server, thread = start_http_server(port, addr=host, registry=registry)
        except (OSError, OverflowError) as error:
            raise EnvironmentFailed(
                f"nobody can be answered at {host}:{port}: {error}",
                todo="another process listens there? Choose another prometheus_port, or 0 for any that is free",
            ) from error
        self._server: Any = server
        self._thread: threading.Thread = thread
        self._pid = os.getpid()
        self.address = f"{host}:{server.server_port}"
        """``host:port``."""
        _listening.add(self)

    def close(self) -> None:
        """Answer no more; closing twice is fine. In a fork of the process it does nothing."""
        server, self._server = self._server, None
        _listening.discard(self)
        if server is None or os.getpid() != self._pid:
            return
        server.shutdown()
        server.server_close()
        self._thread.join()

    def _abandon(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            with contextlib.suppress(OSError):
                server.socket.close()


class _Collector:
    """What prometheus-client asks at each scrape."""

    def __init__(self, families: Callable[[], Iterable[Family]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for family in self._families():
            made = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            labels = list(family.values[0][0]) if family.values else []
            metric = made(family.name, family.text, labels=labels)
            for own, value in family.values:
                metric.add_metric([own[label] for label in labels], value)
            yield metric
