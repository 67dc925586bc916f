"""How is a run of the incident suite trained? As any run with dataguard is: a loader, a monitor, a loop.

What reaches dataguard is what every trainer would log: loss, gradient norm and rate of each step and rank, the losses
of samples, what `Monitor.watch` samples, the checkpoints that are kept and what the trainer says of itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor, nn

from dataguard import Corpus, Geometry, Plan, Run
from dataguard.core.trainer import ArchitectureFacts, CheckpointFacts, OptimizerFacts, PrecisionFacts, TrainerFacts
from dataguard.torch import GuardedLoader, Monitor, Record, TensorMicrobatch
from dataguard.torch.canary import compare_ranks, take
from tests.incidents.model import ByteModel, sample_losses
from tests.incidents.stage import BATCH, Settings, Stage, encode_bytes

__all__ = ["Training", "encode", "mean_loss", "open_run"]


def encode(record: Record) -> dict[str, Tensor]:
    """What a slot holds."""
    return encode_bytes(record.bytes)


def mean_loss(model: nn.Module, microbatch: TensorMicrobatch) -> Tensor:
    """The mean over the loss tokens of a microbatch, as it is logged."""
    sums, counts = sample_losses(model(microbatch["input_ids"]), microbatch["labels"])
    return sums.sum() / counts.sum()


def open_run(stage: Stage, settings: Settings) -> Run:
    """The run of a stage, created where it is not there yet."""
    plan = Plan(Corpus.open(stage.manifest), seed=stage.seed, global_batch=BATCH, shuffle="none", lanes=settings.lanes)
    return Run.open(stage.run, plan=plan)


class Training:
    """One rank of a run."""

    def __init__(self, stage: Stage, settings: Settings, *, rank: int = 0) -> None:
        self.stage, self.settings, self.rank = stage, settings, rank
        self.model, self.optimizer = stage.trainee(settings)
        self.run = open_run(stage, settings)

    def go(self) -> None:
        """Train to the end."""
        settings, stage = self.settings, self.stage
        torch.manual_seed(stage.seed)
        geometry = Geometry(world_size=settings.world_size, microbatch_size=BATCH // settings.world_size)
        loader = GuardedLoader(
            self.run, geometry=geometry, rank=self.rank, transform=encode, steps=settings.num_steps, launch_id="train"
        )
        monitor = Monitor(self.run, rank=self.rank, loader=loader)
        monitor.describe(self._facts())
        if settings.watch_every:
            monitor.watch(self.model, self.optimizer, every=settings.watch_every)
        for step in range(settings.num_steps):
            settings.fault.before_step(self, step)
            microbatches = loader.take_step()
            self._step(monitor, step, microbatches)
            if (step + 1) % settings.checkpoint_every == 0:
                self._save(monitor, step + 1)
            if settings.canary_every and (step + 1) % settings.canary_every == 0:
                self._canary()
        monitor.close()
        loader.close()

    def _step(self, monitor: Monitor, step: int, microbatches: Sequence[TensorMicrobatch]) -> None:
        settings = self.settings
        (group,) = self.optimizer.param_groups
        group["lr"] = settings.lr(step)
        counted = [(each["labels"][:, 1:] >= 0).sum() for each in microbatches]
        num_tokens = torch.stack(counted).sum().float()
        all_tokens = num_tokens.clone()
        if settings.world_size > 1:
            dist.all_reduce(all_tokens)
        total = torch.zeros(())
        for microbatch in microbatches:
            with settings.fault.forward(step):
                logits = self.model(microbatch["input_ids"])
                sums, counts = sample_losses(logits, microbatch["labels"])
            (sums.sum() / all_tokens.clamp(min=1)).backward()
            monitor.log_samples(microbatch, (sums / counts.clamp(min=1)).detach())
            total += sums.detach().sum()
        settings.fault.on_gradients(self, step)
        more = {}
        if settings.world_size > 1:
            own = _norm(self.model) * all_tokens / num_tokens.clamp(min=1)  # of the mean over this rank's tokens
            more = {"local_grad_norm": own}
            self._reduce()
        clip = float("inf") if settings.clip is None else settings.clip
        grad_norm = nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        self.optimizer.step()
        settings.fault.after_update(self, step)
        self.optimizer.zero_grad()
        loss = total / num_tokens if num_tokens > 0 else None  # nothing to learn from has no loss
        monitor.log(step, loss=loss, grad_norm=grad_norm, lr=group["lr"], **more)

    def _canary(self) -> None:
        """All ranks compute one microbatch and compare what came out."""
        record = take(
            self.run,
            loss=mean_loss,
            model=self.model,
            optimizer=self.optimizer,
            transform=encode,
            num_repeats=2,
            rank=self.rank,
        )
        compare_ranks(self.run, record)

    def _reduce(self) -> None:
        """Sum gradients over ranks, all at once."""
        gradients = [each.grad for each in self.model.parameters() if each.grad is not None]
        flat = torch.cat([each.flatten() for each in gradients])
        dist.all_reduce(flat)
        for gradient, part in zip(gradients, flat.split([each.numel() for each in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def _save(self, monitor: Monitor, next_step: int) -> None:
        if self.rank:
            return
        path = self.stage.checkpoint(next_step)
        path.parent.mkdir(exist_ok=True)
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, path)
        monitor.checkpoint(next_step, path)

    def _facts(self) -> TrainerFacts:
        """What follows from the settings, and what they say beyond."""
        settings = self.settings
        facts = TrainerFacts(
            architecture=ArchitectureFacts(
                d_model=self.model.embed.embedding_dim, num_layers=len(self.model.blocks), qk_norm=False, qk_clip=False
            ),
            optimizer=OptimizerFacts(
                name=type(self.optimizer).__name__,
                clip_norm=settings.clip or 0.0,
                beta1=settings.betas[0],
                beta2=settings.betas[1],
                epsilon=settings.eps,
                weight_decay=0.1,
            ),
            precision=PrecisionFacts(compute="float32", optimizer_state="float32", master_weights="float32"),
            checkpoints=CheckpointFacts(every_steps=settings.checkpoint_every),
        )
        for name in TrainerFacts.__struct_fields__:
            given = getattr(settings.facts, name)
            if isinstance(given, msgspec.Struct):
                said = {key: value for key, value in msgspec.structs.asdict(given).items() if value is not None}
                given = msgspec.structs.replace(getattr(facts, name), **said)
            facts = msgspec.structs.replace(facts, **{name: given})
        return facts


def _norm(model: ByteModel) -> Tensor:
    norms = [torch.linalg.vector_norm(each.grad) for each in model.parameters() if each.grad is not None]
    return torch.linalg.vector_norm(torch.stack(norms))


def checkpoints_of(stage: Stage) -> list[Path]:
    """What was kept, in order."""
    return sorted(stage.checkpoint(0).parent.glob("*.pt"))
