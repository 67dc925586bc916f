"""What trainers print: each format by lines of its kind, among everything else that goes to a terminal."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from dataguard.errors import InputError
from dataguard.run.logs import TrainingLog, read_log

MEGATRON = (
    " [2026-03-01 10:00:{second:02d}.123] iteration {step:8d}/  500000 | consumed samples: {samples:12d} | "
    "elapsed time per iteration (ms): 1234.5 | learning rate: 6.000000E-05 | global batch size:   512 | "
    "lm loss: {loss} | loss scale: 1.0 | grad norm: {norm} | number of skipped iterations:   0 | "
    "number of nan iterations:   0 |"
)


def log_of(tmp_path: Path, *lines: str) -> TrainingLog:
    path = tmp_path / "out.txt"
    path.write_text("\n".join(lines) + "\n")
    return read_log(path)


def megatron(step: int, loss: str, norm: str = "1.500") -> str:
    return MEGATRON.format(second=step % 60, step=step, samples=step * 512, loss=loss, norm=norm)


def points(log: TrainingLog, name: str) -> dict[int, float]:
    return dict(zip(*(part.tolist() for part in log.series(name)), strict=True))


def test_megatron_among_everything_else(tmp_path: Path) -> None:
    noise = ["using world size: 8", "  lr ....... 6e-05", "WARNING: iteration is slow, 3/4 done"] * 400
    skipped = megatron(3, "X").replace(" lm loss: X |", "")
    log = log_of(
        tmp_path,
        *noise,
        megatron(1, "1.073129E+01"),
        "[default7]:" + megatron(2, "nan", "nan"),
        skipped,
        "\x1b[32m" + megatron(4, "9.5E+00") + "\x1b[0m",
        megatron(5, "9.4E+00")[:200],
        " validation loss at iteration 4 | lm loss value: 9.6E+00 | lm loss PPL: 1.4E+04 | ",
        "----------------------------------",
        megatron(4, "9.25E+00"),
    )
    assert log.format == "megatron"
    assert log.steps.tolist() == [1, 2, 3, 4, 4]
    assert log.values["lm loss"].tolist()[0] == 10.73129
    assert math.isnan(log.values["lm loss"][1])
    assert log.missing["lm loss"].tolist() == [False, False, True, False, False]
    assert points(log, "grad norm")[1] == 1.5
    assert points(log, "elapsed time per iteration (ms)")[1] == 1234.5
    assert points(log, "validation lm loss value") == {4: 9.6}
    problems = {problem.kind: problem for problem in log.problems}
    assert problems.keys() == {"unparsed", "duplicate"}
    assert (problems["unparsed"].count, problems["unparsed"].first_line) == (1, len(noise) + 5)
    assert "iteration        5" in problems["unparsed"].text
    assert problems["duplicate"].first_line == len(noise) + 8


def test_llm_c_as_its_file_and_as_it_prints(tmp_path: Path) -> None:
    log = log_of(
        tmp_path,
        "s:0 tel:11.0",
        "s:0 trl:10.9 lr:0.000001 norm:15.3",
        "s:1 trl:-nan lr:1e-6 norm:2 x",
        "s:250 eval:0.25",
    )
    assert log.format == "llm-c"
    assert log.steps.tolist() == [0, 250]
    assert points(log, "trl") == {0: 10.9}
    assert points(log, "tel") == {0: 11.0}
    assert points(log, "eval") == {250: 0.25}
    assert [(problem.kind, problem.first_line) for problem in log.problems] == [("unparsed", 3)]
    printed = log_of(
        tmp_path,
        "| model: gpt2 |",
        "step    1/19560 | loss 11.009202 (+nanz)| norm 15.3691 (+nanz)| lr 1.00e-06 | 3424.09 ms | 57.3% bf16 MFU | "
        "153124 tok/s",
        "val loss 10.98",
        "step    2/19560 | train loss 9.5 | norm 2.5 | lr 1.00e-06 | (3424.09 ms | 153124 tok/s)",
    )
    assert printed.format == "llm-c"
    assert points(printed, "loss") == {1: 11.009202, 2: 9.5}
    assert points(printed, "norm") == {1: 15.3691, 2: 2.5}
    assert points(printed, "ms") == {1: 3424.09, 2: 3424.09}
    assert points(printed, "tok/s") == {1: 153124.0, 2: 153124.0}


def test_modded_nanogpt_and_nanogpt(tmp_path: Path) -> None:
    log = log_of(
        tmp_path,
        "import os",
        "step:0/100 val_loss:10.8 train_time:3ms step_avg:nanms",
        "step:1/100 train_loss:10.7 train_time:100ms step_avg:nanms",
        "step:2/100 train_loss:nan train_time:200ms step_avg:100.5ms",
        "step:3/100 train_lostep:4/100",
        "step:3/100 train_loss:1.5 train_time:300ms step_avg:",
    )
    assert log.format == "modded-nanogpt"
    assert points(log, "val_loss") == {0: 10.8}
    assert points(log, "val train_time") == {0: 3.0}
    assert points(log, "train_loss")[1] == 10.7
    assert math.isnan(points(log, "train_loss")[2])
    assert points(log, "step_avg")[2] == 100.5
    assert [(problem.kind, problem.count, problem.first_line) for problem in log.problems] == [("unparsed", 1, 6)]
    nano = log_of(
        tmp_path,
        "step 0: train loss 10.9, val loss 11.0",
        "iter 0: loss 10.9, time 3500.5ms, mfu -100.00%",
        "saving checkpoint",
        "iter 10: loss 9.5, time 350.5ms, mfu 35.25%",
    )
    assert nano.format == "modded-nanogpt"
    assert points(nano, "loss") == {0: 10.9, 10: 9.5}
    assert points(nano, "mfu") == {0: -100.0, 10: 35.25}
    assert points(nano, "eval val loss") == {0: 11.0}


def test_torchtitan_with_colors_and_progress_bars(tmp_path: Path) -> None:
    log = log_of(
        tmp_path,
        "[rank0]:[titan] 2026-03-01 10:00:00,123 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss:  8.1  "
        "\x1b[33mgrad_norm:  1.25  \x1b[34mmemory:  0.50GiB(0.53%)  \x1b[36mtps: 1,234  \x1b[35mmfu: 0.49%\x1b[39m",
        "10%|#   | 1/10\r[titan] step:  2  loss:  7.5  memory: 1.25GiB(1.3%)  tps: 12,345\r20%|##",
        "[titan] step: 3  loss:",
    )
    assert log.format == "torchtitan"
    assert points(log, "loss") == {1: 8.1, 2: 7.5}
    assert points(log, "memory") == {1: 0.5, 2: 1.25}
    assert points(log, "tps") == {1: 1234.0, 2: 12345.0}
    assert points(log, "grad_norm") == {1: 1.25}
    assert [(problem.kind, problem.first_line) for problem in log.problems] == [("unparsed", 3)]


def test_lists_of_losses(tmp_path: Path) -> None:
    log = log_of(tmp_path, "1 8.5", "2 nan", "", "3 8.25 9", "4 8.0")
    assert log.format == "losses"
    assert log.steps.tolist() == [1, 2, 4]
    assert [(problem.kind, problem.first_line) for problem in log.problems] == [("unparsed", 4)]


def test_a_log_whose_lines_are_all_torn_holds_no_points(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no points") as error:
        log_of(tmp_path, " iteration        5/  500000 | consumed")
    assert "a line cannot be parsed (line 1)" in str(error.value)


REAL = {
    "megatron_gpt3_15b.json.gz": ("megatron-golden", "lm loss", 10_173, 1, 50_860),
    "megatron_mixtral_8x7b.json.gz": ("megatron-golden", "lm loss", 3_094, 1, 23_405),
    "nanogpt_2024-10-20_ScaleUp1B_ad8d7ae5.log.gz": ("modded-nanogpt", "train_loss", 20_344, 1, 20_344),
    "nanogpt_2024-10-20_ScaleUp1B_c0078066.log.gz": ("modded-nanogpt", "train_loss", 15_258, 1, 15_258),
    "nanogpt_2024-11-10_ScaleShortcuts_4897c987.log.gz": ("modded-nanogpt", "train_loss", 19_073, 1, 19_073),
    "nanogpt_2024-11-14_QuantizedFP4_70a0ada6.log.gz": ("modded-nanogpt", "train_loss", 19_073, 1, 19_073),
    "nanogpt_2024-11-14_QuantizedFP4_932bbe0e.log.gz": ("modded-nanogpt", "train_loss", 19_073, 1, 19_073),
    "nanogpt_adamw_loss.log.gz": ("llm-c", "trl", 9_536, 0, 9_535),
    "nanogpt_llmc_loss_lr_gradnorm.log.gz": ("llm-c", "norm", 19_560, 0, 19_559),
    "torchtitan_llama3_cuda.txt": ("losses", "loss", 100, 1, 100),
    "torchtitan_llama3_rocm_mi350x.txt": ("losses", "loss", 100, 1, 100),
    "torchtitan_qwen3_moe_cuda.txt": ("losses", "loss", 100, 1, 100),
}
"""File -> format, name of a series, its points, first and last step."""


def test_every_real_log_is_read_to_its_last_line(shared: Path) -> None:
    folder = shared / "data" / "training_logs"
    assert {path.name for path in folder.iterdir()} == set(REAL)
    for file, (kind, name, num_points, first, last) in REAL.items():
        log = read_log(folder / file)
        steps, values = log.series(name)
        assert (log.format, len(steps), int(steps[0]), int(steps[-1])) == (kind, num_points, first, last), file
        assert bool((values == values).all()), "none of them ever logged a NaN loss"
        assert log.problems == ()
    norms = points(read_log(folder / "nanogpt_llmc_loss_lr_gradnorm.log.gz"), "norm")
    assert norms[9025] == 2.02
    mixtral = points(read_log(folder / "megatron_mixtral_8x7b.json.gz"), "lm loss")
    assert round(mixtral[4055], 3) == 5.115


@pytest.mark.parametrize(
    "line",
    [
        " iteration {step}/ 100 | lm loss: 1.0 |",
        " validation loss at iteration {step} | lm loss value: 1.0 |",
        "s:{step} trl:1.0",
        "step {step}/9 | loss 1.0 | norm 1.0 |",
        "step:{step}/9 train_loss:1.0",
        "iter {step}: loss 1.0, time 3ms",
        "step {step}: train loss 1.0, val loss 1.0",
        "step: {step}  loss: 1.0",
    ],
)
def test_a_step_of_more_digits_than_any_has_is_told(tmp_path: Path, line: str) -> None:
    log = log_of(tmp_path, line.format(step="1" * 5000), line.format(step=7))
    assert log.steps.tolist() == [7]
    assert [(problem.kind, problem.count, problem.first_line) for problem in log.problems] == [("without_step", 1, 1)]
