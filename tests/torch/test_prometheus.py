"""What a rank answers to those who scrape it: over real HTTP, on loopback, held against what stands in the run."""

from __future__ import annotations

import gc
import math
import os
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families

from dataguard.corpus.corpus import Corpus
from dataguard.errors import EnvironmentFailed, UsageError
from dataguard.gate.policy import read_policy
from dataguard.loader.loader import Loader
from dataguard.plan.slots import SlotStatus
from dataguard.run.index import Index
from dataguard.run.run import Run
from dataguard.run.telemetry_reading import read_telemetry
from dataguard.torch.monitoring import serving
from dataguard.torch.monitoring.keeping import DATA_WAIT
from dataguard.torch.monitoring.monitor import Monitor
from dataguard.torch.monitoring.scraped import MOST_SOURCES, _tally
from dataguard.triage.watching import logged
from tests.support.gated import documents, rule
from tests.support.runs import make_run, open_loaders
from tests.torch.detected import walk
from tests.torch.later import FakeDevice

# Newer Pythons warn of any fork beside threads; what these children do is safe, and they are the point.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

Scrape = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """180 records of which every seventh is of low entropy."""
    return documents(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def run(tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    make_run(tmp_path / "run", corpus)
    return Run.open(tmp_path / "run", policy=read_policy(rule("substitute"), name="strict"))


@pytest.fixture
def loader(run: Run) -> Iterator[Loader]:
    (made,) = open_loaders(run, microbatch_size=4, steps=300)
    with made:
        yield made


def scraped(address: str | None) -> Scrape:
    """Name and labels -> value, of every sample that is answered."""
    assert address is not None
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def of_rank(found: Scrape, name: str, rank: int = 0, **labels: str) -> float:
    return found[name, tuple(sorted({**labels, "rank": str(rank)}.items()))]


def free_ports(count: int) -> int:
    """The first of so many ports in a row that are free."""
    while True:
        with socket.socket() as first:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
        try:
            for each in range(port, port + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", each))
        except (OSError, OverflowError):
            continue
        return port


def test_what_is_answered_is_what_stands_in_the_run(run: Run, loader: Loader) -> None:
    with Monitor(run, loader=loader, prometheus_port=0) as monitor:
        before = scraped(monitor.prometheus_address)
        assert {name for name, _ in before} == {
            "dataguard_run_info", "dataguard_steps_total", "dataguard_data_wait_seconds_total",
            "dataguard_scrape_problems_total",
        }, "what is not known yet is left out"  # fmt: skip
        for step in range(20):
            for microbatch in loader.take_step():
                monitor.log_samples(microbatch, torch.full((4,), 99.0))
            monitor.log(step, loss=3.0 - step / 8, grad_norm=torch.tensor(0.5 + step), lr=1e-3, tokens=7)
            if step == 9:
                scraped(monitor.prometheus_address)
        found = scraped(monitor.prometheus_address)
    assert found["dataguard_run_info", (("run", run.run_id),)] == 1
    rows = read_telemetry(run.layout, 1)
    rows = rows[rows["slot"] < 0]
    for name, metric in (("loss", "loss"), ("grad_norm", "gradient_norm"), ("lr", "learning_rate")):
        assert of_rank(found, f"dataguard_{metric}") == rows["value"][rows["name"] == name.encode()][-1]
    assert (of_rank(found, "dataguard_step"), of_rank(found, "dataguard_steps_total")) == (19, 20)
    assert of_rank(found, "dataguard_attempt") == 1
    waits = rows[rows["name"] == DATA_WAIT.encode()]
    assert of_rank(found, "dataguard_data_wait_seconds_total") == pytest.approx(waits["value"].sum())
    assert of_rank(found, "dataguard_last_logged_timestamp_seconds") == pytest.approx(rows["time"][-1] / 1e9, abs=5)
    (records,) = Index(run.layout).records(1)
    samples = {key: value for (name, key), value in found.items() if name == "dataguard_samples_total"}
    assert sum(samples.values()) == len(records) == 160
    for (labels), count in samples.items():
        told = dict(labels)
        own = (records["status"] == SlotStatus[told["status"].upper()]) & (told["source"] == "web")
        assert count == own.sum()
    num_substituted = int((records["status"] == SlotStatus.SUBSTITUTED).sum())
    assert num_substituted > 10
    assert of_rank(found, "dataguard_rule_fired_total", rule="low") == np.count_nonzero(records["rules"] & np.uint64(1))
    assert of_rank(found, "dataguard_padding_slots_total") == 0
    assert ("dataguard_events_total", ()) not in found


def test_a_step_that_is_not_kept_counts_and_a_value_on_its_way_is_not_shown(
    run: Run, loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = FakeDevice(monkeypatch)
    with Monitor(run, loader=loader, every=2, prometheus_port=0) as monitor:
        for step in range(3):
            loader.take_step()
            monitor.log(step, loss=torch.tensor(math.nan if step else 2.5))
        found = scraped(monitor.prometheus_address)
        assert of_rank(found, "dataguard_steps_total") == 3
        assert ("dataguard_loss", (("rank", "0"),)) not in found
        assert device.waited_for == 0
        monitor.flush()
        assert math.isnan(of_rank(scraped(monitor.prometheus_address), "dataguard_loss"))


def test_the_detector_is_told_as_it_decided(run: Run, loader: Loader, tmp_path: Path) -> None:
    def fails(alert: object) -> None:
        raise OSError("nobody there")

    sinks = [tmp_path / "alerts.jsonl", fails]
    with Monitor(run, loader=loader, detector=True, alerts=sinks, prometheus_port=0) as monitor:
        with pytest.warns(RuntimeWarning, match="nobody there"):
            decided = walk(monitor, loader, {40: math.nan, 80: 3.0}, range(120))
        found = scraped(monitor.prometheus_address)
    for metric, events in (("events_begun", "began"), ("events", "ended")):
        told = [event.event_class.value for decision in decided for event in getattr(decision, events)]
        for event_class in ("hard_fault", "hard_batch", "transient_spike", "loss_dip"):
            assert of_rank(found, f"dataguard_{metric}_total", event_class=event_class) == told.count(event_class)
        assert metric == "events" or told
    assert of_rank(found, "dataguard_skipped_updates_total") == sum(each.skip_update for each in decided) > 0
    num_sent = len((tmp_path / "alerts.jsonl").read_text().splitlines())
    assert of_rank(found, "dataguard_alerts_sent_total") == num_sent > 0
    assert of_rank(found, "dataguard_alerts_failed_total") == num_sent


def test_each_rank_answers_at_a_port_of_its_own(run: Run) -> None:
    base = free_ports(2)
    loaders = open_loaders(run, world_size=2, microbatch_size=4, steps=4)
    monitors = [Monitor(run, rank, each, prometheus_port=base) for rank, each in enumerate(loaders)]
    for step in range(2):
        for rank, (each, monitor) in enumerate(zip(loaders, monitors, strict=True)):
            each.take_step()
            monitor.log(step, loss=2.0 + rank)
    assert [monitor.prometheus_address for monitor in monitors] == [f"127.0.0.1:{base}", f"127.0.0.1:{base + 1}"]
    for rank, monitor in enumerate(monitors):
        found = scraped(monitor.prometheus_address)
        assert of_rank(found, "dataguard_loss", rank) == 2.0 + rank
        samples = [value for (name, labels), value in found.items() if name == "dataguard_samples_total"]
        assert sum(samples) == 2 * 4, "those of this rank alone"
    for each in (*monitors, *loaders):
        each.close()


def test_the_place_on_the_machine_is_the_launchers(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    base = free_ports(3)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with Monitor(run, rank=0, prometheus_port=base) as monitor:
        assert monitor.prometheus_address == f"127.0.0.1:{base + 2}"


def test_a_port_that_is_taken_is_told_before_training_begins(run: Run) -> None:
    with Monitor(run, rank=0, prometheus_port=0) as first:
        assert first.prometheus_address is not None
        port = int(first.prometheus_address.rpartition(":")[2])
        with pytest.raises(EnvironmentFailed, match=f"nobody can be answered at 127.0.0.1:{port}") as raised:
            Monitor(run, rank=0, prometheus_port=port)
        assert raised.value.exit_code == 4
        assert raised.value.todo is not None
    with Monitor(run, rank=0, prometheus_port=port):
        pass


@pytest.mark.parametrize("port", [-1, 65_536, True, "9400"])
def test_what_is_no_port_is_refused(run: Run, port: object) -> None:
    with pytest.raises(UsageError, match="prometheus_port"):
        Monitor(run, rank=0, prometheus_port=port)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="is no port"):
        Monitor(run, rank=3, prometheus_port=65_535)


def test_nobody_is_answered_after_the_end(run: Run, loader: Loader) -> None:
    monitor = Monitor(run, loader=loader, prometheus_port=0)
    loader.take_step()
    monitor.log(0, loss=2.0)
    addresses = [monitor.prometheus_address]
    monitor.close()
    monitor.close()
    dropped = Monitor(run, rank=0, prometheus_port=0)
    addresses.append(dropped.prometheus_address)
    scraped(dropped.prometheus_address)
    del dropped
    gc.collect()
    for address in addresses:
        with pytest.raises(urllib.error.URLError):
            scraped(address)


def test_a_fork_lets_go_of_the_port(run: Run) -> None:
    """A worker that lives on after the monitor would keep the port, and whoever scrapes it would wait for ever."""
    monitor = Monitor(run, rank=0, prometheus_port=0)
    assert monitor.prometheus_address is not None
    port = int(monitor.prometheus_address.rpartition(":")[2])
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(writing)
            monitor.close()  # hangs where it waits for a thread that only the parent has
            code = 0 if os.read(reading, 1) == b"" else 2
        finally:
            os._exit(code)
    os.close(reading)
    scraped(monitor.prometheus_address)
    monitor.close()
    with Monitor(run, rank=0, prometheus_port=port) as again:
        scraped(again.prometheus_address)
    os.close(writing)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_without_the_package_it_says_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UsageError) as raised:
        Monitor(run, rank=0, prometheus_port=0)
    assert raised.value.todo == "pip install 'dataguard[prometheus]'"
    with Monitor(run, rank=0) as monitor:
        assert monitor.prometheus_address is None


def test_sources_are_bounded() -> None:
    records = {name: np.zeros(500, np.uint64) for name in ("status", "verdict", "rules")}
    records["source"] = np.arange(500).astype(np.uint16)
    counts = _tally(500).total(records)
    assert counts.sum() == 500
    assert np.count_nonzero(counts) == MOST_SOURCES + 1


def test_two_rooms_mean_the_same_name() -> None:
    assert logged.DATA_WAIT == DATA_WAIT
    assert serving.LOOPBACK == "127.0.0.1"
