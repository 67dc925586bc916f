"""What goes on inside a model that trains, seen every so many steps?

`watch` puts one hook on the model and two on the optimizer. On a step that is not sampled they compare two numbers and
return. On a sampled step they put more hooks on for its duration, and these values go to the run's telemetry, each with
the part of the model behind a slash (see `blocks`):

- at the end of each forward pass: ``activation_rms`` and ``activation_max`` of what each block gives,
  ``attention_logit_max`` of each block (see `attention`), ``attention_logit_head``, which of its heads that is, and
  each head's own as ``attention_logit_max/blocks.3/head=7`` (queries are counted where keys are shared by groups), and
  ``log_z``, the mean over all places of the log of the sum of the exponentials of the logits;
- at the end of each backward pass: ``local_grad_norm``, of the gradient that this pass alone gave on this rank, before
  it is added to that of other microbatches, before ranks are reduced, before clipping, and still scaled where a loss
  scaler is used; of a step it is the largest of its passes;
- around the optimizer's step: ``grad_norm`` of what the optimizer is given, ``param_norm`` after the step,
  ``update_ratio_rms`` and ``update_ratio_max`` of |m| / (sqrt(v) + eps), and ``epsilon_floor_share``, the share of
  coordinates whose sqrt(v) lies below ten epsilon.

Of several microbatches the values cover all so far, and the last of a step covers the step. All is computed on the
device and read without waiting; no step that is not sampled waits for anything, and no rank speaks to another. What a
checkpointed block computes again in the backward pass does not count again. Passes without gradients, or of a model in
evaluation, are not sampled. Of sharded parameters the norms are of this rank's shards: the square root of the sum of
their squares over the ranks is the whole. Their gradients are reduced before anybody sees them, so they have no
``local_grad_norm``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, Self

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from dataguard.errors import UsageError
from dataguard.torch.watching.attention import LogitWatch
from dataguard.torch.watching.blocks import Parts, is_attention, parts_of
from dataguard.torch.watching.sample import Sample, first_tensor, logits_of

__all__ = ["Recorder", "Watch", "watch"]


class Recorder(Protocol):
    """What keeps the values: a `Monitor`."""

    @property
    def step_in_hand(self) -> int | None:
        """The newest step of which something was handed over, as the trainer calls it; None before the first."""

    def record(self, step: int, values: Mapping[str, Any], /) -> None:
        """Keep numbers of a step."""


def watch(
    monitor: Recorder,
    model: nn.Module,
    optimizer: Optimizer | Iterable[Optimizer] | None = None,
    *,
    every: int = 100,
    step: Callable[[], int] | None = None,
    logits: Callable[[Any], torch.Tensor | None] | None = None,
    heads: bool | None = None,
) -> Watch:
    """Sample what goes on inside a model, every so many steps, until the handle is removed.

    Parameters
    ----------
    monitor
        Where the values go.
    model
        The module that the training loop calls (the wrapper, where there is one).
    optimizer
        One, several, or none: without one nothing about updates is sampled.
    every
        Steps whose label is a multiple of this are sampled.
    step
        Gives the step that the model is trained on now, as the trainer calls it. Default: the one of which the loader
        handed something over last; a trainer that fetches the next batch ahead must say it.
    logits
        Finds the logits in what the model gives, or says None. Default: its ``logits``, else its first tensor of two
        or more dimensions.
    heads
        Whether each attention head has a value of its own. Default: where the model has at most 512 of them; of more,
        the one with the largest logit is told by block. False says nothing of heads.

    Raises
    ------
    UsageError
        `every` cannot be, or something is no module or optimizer.
    """
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise UsageError(f"every {every!r} cannot be", allowed="a whole number of steps, at least 1")
    if not isinstance(model, nn.Module):
        raise UsageError(f"a {type(model).__name__} cannot be watched", allowed="a torch.nn.Module")
    return Watch(monitor, model, _optimizers(optimizer), every=every, step=step, logits=logits, heads=heads)


def _optimizers(given: Optimizer | Iterable[Optimizer] | None) -> tuple[Optimizer, ...]:
    several = () if given is None else (given,) if isinstance(given, Optimizer) else tuple(given)
    found = []
    for each in several:
        inside: Any = each
        while isinstance(getattr(inside, "optimizer", None), Optimizer):
            inside = inside.optimizer  # a framework wraps it; the one inside makes the step
        if not isinstance(inside, Optimizer):
            raise UsageError(f"a {type(inside).__name__} cannot be watched", allowed="torch.optim.Optimizer")
        found.append(inside)
    return tuple(found)


class Watch:
    """The handle of a watched model; made by `watch`. `remove` it, or use it as a context manager."""

    def __init__(
        self,
        monitor: Recorder,
        model: nn.Module,
        optimizers: tuple[Optimizer, ...],
        *,
        every: int,
        step: Callable[[], int] | None,
        logits: Callable[[Any], torch.Tensor | None] | None,
        heads: bool | None,
    ) -> None:
        self._monitor = monitor
        self._model = model
        self._optimizers = optimizers
        self._every = every
        self._step = step
        self._find_logits = logits or logits_of
        self._heads = heads
        self._notes: list[str] = []
        self._parameters = parts_of(model).parameters
        """As they are now: what shards parameters puts others in their place while a pass goes on."""
        self._sample: Sample | None = None
        self._done: int | None = None
        """The step that was sampled last, to its end."""
        self._part: list[str] = []
        """The block (and attention) that the forward pass is in."""
        self._num_attentions = 0
        """How many attentions the forward pass is in."""
        self._mode: LogitWatch | None = None
        self._forward: list[RemovableHandle] = []
        """Hooks for the duration of one forward pass."""
        self._backward: list[RemovableHandle] = []
        """Hooks for the duration of one sampled step."""
        self._queued = False
        self._always: list[RemovableHandle] = [
            model.register_forward_pre_hook(self._before_model, prepend=True),
            model.register_forward_hook(self._after_model, always_call=True),
        ]
        for optimizer in optimizers:
            self._always.append(optimizer.register_step_pre_hook(self._before_step))
            self._always.append(optimizer.register_step_post_hook(self._after_step))

    @property
    def every(self) -> int:
        """Steps whose label is a multiple of this are sampled."""
        return self._every

    @property
    def notes(self) -> tuple[str, ...]:
        """What cannot be seen of this model, and why. Each is said once, as a warning."""
        return tuple(self._notes)

    def remove(self) -> None:
        """Take every hook off; twice is fine."""
        self._end_forward()
        self._end_sample()
        for handle in self._always:
            handle.remove()
        self._always.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.remove()

    # -- which step

    def _begin(self) -> Sample | None:
        """The sample that the step in hand belongs to; None where it is not to be sampled."""
        step = self._monitor.step_in_hand if self._step is None else int(self._step())
        if self._sample is not None and self._sample.step != step:
            self._end_sample()  # its optimizer made no step: a loss scaler skipped it
        if step is None or step % self._every or step == self._done:
            return None
        if self._sample is None:
            parts = parts_of(self._model).with_parameters(self._parameters)
            self._sample = Sample(step, parts, self._say, heads=self._heads)
            self._note_compiled(parts)
            for parameters in parts.parameters.values():
                for parameter in parameters:
                    hooked: Any = parameter
                    self._backward.append(hooked.register_hook(self._gradient_of(id(parameter))))
        return self._sample

    def _end_sample(self) -> None:
        if self._sample is not None:
            self._done = self._sample.step
        self._sample = None
        self._queued = False
        _remove(self._backward)

    def _record(self, sample: Sample, values: Mapping[str, torch.Tensor]) -> None:
        if values:
            self._monitor.record(sample.step, values)

    def _say(self, note: str) -> None:
        if note not in self._notes:
            self._notes.append(note)
            warnings.warn(note, RuntimeWarning, stacklevel=3)

    def _note_compiled(self, parts: Parts) -> None:
        if parts.compiled:
            shown = ", ".join(parts.compiled[:3]) + (", ..." if len(parts.compiled) > 3 else "")
            self._say(
                f"torch.compile runs {shown}: activations and attention logits inside cannot be seen (what goes in and "
                "out of it, gradients, parameters and updates can)"
            )

    # -- the forward pass

    def _before_model(self, model: nn.Module, *_: Any) -> None:
        if torch.compiler.is_compiling() or not model.training or not torch.is_grad_enabled():
            return
        sample = self._begin()
        if sample is None:
            return
        self._end_forward()
        parts = sample.parts
        for name, module in parts.blocks.items():
            if module is not model:
                self._enter(module, name, attention=is_attention(name, module))
                self._forward.append(module.register_forward_hook(self._after_block(name), always_call=True))
        for name, module in parts.attentions.items():
            self._enter(module, name, attention=True)
        if not parts.compiled:
            mode: Any = LogitWatch(
                self._found_logit, lambda: self._num_attentions > 0, by_head=self._heads is not False
            )
            mode.__enter__()
            self._mode = mode

    def _after_model(self, model: nn.Module, _: Any, output: Any) -> None:
        if torch.compiler.is_compiling():
            return
        was_seen = self._mode is not None or bool(self._forward)
        self._end_forward()
        sample = self._sample
        if sample is None or not model.training or not torch.is_grad_enabled() or output is None:
            return
        with torch.no_grad():
            logits = self._find_logits(output)
            if logits is not None:
                sample.add_logits(logits)
            else:
                self._say("no logits are seen in what the model gives, so there is no log_z (say where: logits=)")
            if was_seen:
                self._note_attention(sample)
            self._record(sample, sample.forward_values())

    def _note_attention(self, sample: Sample) -> None:
        if sample.parts.attentions and not sample.has_attention and not sample.parts.compiled:
            kinds = sorted({type(module).__name__ for module in sample.parts.attentions.values()})
            self._say(
                f"no attention logit is visible ({', '.join(kinds[:3])}): they are where torch's own "
                "scaled_dot_product_attention, MultiheadAttention or softmax is called"
            )

    def _end_forward(self) -> None:
        if self._mode is not None:
            mode: Any = self._mode
            self._mode = None
            mode.__exit__(None, None, None)
        _remove(self._forward)
        self._part.clear()
        self._num_attentions = 0

    def _enter(self, module: nn.Module, name: str, *, attention: bool = False) -> None:
        def before(*_: Any) -> None:
            self._part.append(name)
            self._num_attentions += attention

        def after(*_: Any) -> None:
            if self._part and self._part[-1] == name:
                self._part.pop()
                self._num_attentions -= attention

        self._forward.append(module.register_forward_pre_hook(before))
        self._forward.append(module.register_forward_hook(after, always_call=True))

    def _after_block(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        def after(_: nn.Module, __: Any, output: Any) -> None:
            tensor = first_tensor(output)
            if tensor is not None and self._sample is not None:
                with torch.no_grad():
                    self._sample.add_activation(name, tensor)

        return after

    def _found_logit(self, logit: torch.Tensor) -> None:
        if self._sample is not None:
            self._sample.add_attention(self._part[0] if self._part else "", logit)

    # -- the backward pass

    def _gradient_of(self, parameter: int) -> Callable[[torch.Tensor], None]:
        def given(gradient: torch.Tensor) -> None:
            if self._sample is None:
                return
            with torch.no_grad():
                self._sample.add_local_gradient(parameter, gradient)
            if not self._queued:
                self._queued = True
                engine: Any = torch.autograd.Variable._execution_engine
                engine.queue_callback(self._after_backward)

        return given

    def _after_backward(self) -> None:
        self._queued = False
        if self._sample is not None:
            with torch.no_grad():
                self._record(self._sample, self._sample.backward_values())

    # -- the optimizer's step

    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        sample = self._begin()
        if sample is not None:
            with torch.no_grad():
                sample.add_gradients(optimizer)

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        sample = self._sample
        if sample is None:
            return
        with torch.no_grad():
            sample.add_updates(optimizer)
            self._record(sample, sample.step_values())
        if sample.num_optimizers == len(self._optimizers):
            self._end_sample()


def _remove(handles: list[RemovableHandle]) -> None:
    for handle in handles:
        handle.remove()
    handles.clear()
